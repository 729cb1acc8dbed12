/** A supervisor of the test's own, in a state directory of its own. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { type ConnectOptions, Pinfold } from "../src/index.js";

const root = resolve("../..");

/** The Python that has the supervisor's dependencies: of `make setup`, or another. */
const python = [process.env["PINFOLD_TEST_PYTHON"], join(root, ".venv/bin/python")].find(
  (path) => path !== undefined && existsSync(path),
);

/** Why the live tests can't run here; false when they can. */
export const noSupervisor: string | false =
  python === undefined
    ? "no supervisor: run `make setup` in the repository, or set PINFOLD_TEST_PYTHON"
    : false;

export const workerProgram = resolve("build/src/bin/pinfold-worker-ts.js");

export class Supervisor implements AsyncDisposable {
  readonly state = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  readonly #clients: Pinfold[] = [];
  #process: ChildProcess | undefined;

  static async start(settings: string | ((state: string) => string) = ""): Promise<Supervisor> {
    const supervisor = new Supervisor();
    const text = typeof settings === "string" ? settings : settings(supervisor.state);
    writeFileSync(join(supervisor.state, "pinfold.toml"), text);
    await supervisor.up();
    return supervisor;
  }

  async up(): Promise<void> {
    const environment = Object.entries(process.env).filter(([name]) => !/^PINFOLD_/.test(name));
    const child = spawn(python ?? "", ["-m", "pinfoldd", "--state", this.state], {
      env: {
        ...Object.fromEntries(environment),
        PYTHONPATH: ["supervisor", "clients/python"].map((path) => join(root, path)).join(":"),
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#process = child;
    let said = "";
    const ready = new Promise<void>((resolve, reject) => {
      const listen = (data: Buffer) => {
        said += data;
        if (said.includes("pinfoldd ready")) {
          resolve();
        }
      };
      child.stdout.on("data", listen);
      child.stderr.on("data", listen);
      child.once("exit", () => reject(new Error(`the supervisor did not start:\n${said}`)));
    });
    await ready;
  }

  client(options: ConnectOptions = {}): Pinfold {
    const client = Pinfold.connect({ state: this.state, token: "", ...options });
    this.#clients.push(client);
    return client;
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) {
      client.close();
    }
    await this.kill("SIGTERM");
    rmSync(this.state, { recursive: true, force: true });
  }
}

/** A certificate authority, and certificates of it for the supervisor and a client. */
export function makeCertificates(directory: string): void {
  const openssl = (...args: string[]) =>
    execFileSync("openssl", args, { cwd: directory, stdio: "ignore" });
  const key = (name: string) => ["-newkey", "rsa:2048", "-nodes", "-keyout", `${name}.key`];
  openssl("req", "-x509", ...key("ca"), "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2");
  writeFileSync(join(directory, "san"), "subjectAltName=IP:127.0.0.1,DNS:pinfold.test");
  for (const name of ["server", "client"]) {
    openssl("req", ...key(name), "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    const signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
    const into = ["-in", `${name}.csr`, "-out", `${name}.pem`, "-extfile", "san"];
    openssl("x509", "-req", ...signer, ...into);
  }
}
