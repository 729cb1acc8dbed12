import { type ServiceError, status } from "@grpc/grpc-js";

import { readDetails } from "./details.js";
import type { Reason } from "./reasons.js";

/** A gRPC status code by name. */
export type ErrorCode = Exclude<keyof typeof status, "OK">;

/** What goes with a {@link PinfoldError}. */
export interface ErrorFacts {
  code: ErrorCode;
  reason?: Reason | (string & {});
  metadata?: Readonly<Record<string, string>>;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/**
 * What the supervisor answered in place of a result.
 *
 * A program's failure is never one of these: it is a {@link Result}. Nor is the end of a wait's
 * time. An aborted `AbortSignal` rejects with the signal's own reason.
 */
export class PinfoldError extends Error {
  override readonly name = "PinfoldError";
  readonly code: ErrorCode;
  /**
   * An UPPER_SNAKE word (see docs/errors.md); a later supervisor may know more of them. Empty when
   * the error came from below, such as a lost connection.
   */
  readonly reason: Reason | "" | (string & {});
  /** The reason's details, such as the id that is unknown. */
  readonly metadata: Readonly<Record<string, string>>;
  /** When to try again, where the supervisor said so. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, facts: ErrorFacts) {
    super(
      message || facts.reason || facts.code,
      facts.cause === undefined ? undefined : { cause: facts.cause },
    );
    this.code = facts.code;
    this.reason = facts.reason ?? "";
    this.metadata = facts.metadata ?? {};
    this.retryAfterMs = facts.retryAfterMs;
  }
}

// What Node says of a certificate that it does not trust: no repeat makes it better.
const CERTIFICATE = /\bcertificate\b|\bcert\b|\bSSL\b|\bTLS\b|altname/;
// What grpc-js says when a connection ended before the status came.
const LOST = /without gRPC status/;

/** The error for a failed RPC, with what its status details say. */
export function fromRpc(failure: unknown): PinfoldError {
  if (failure instanceof PinfoldError) {
    return failure;
  }
  if (!isServiceError(failure)) {
    // A field that can't be encoded, such as a number out of its range.
    const message = failure instanceof Error ? failure.message : String(failure);
    return invalid(message, failure);
  }
  const code = status[failure.code] as ErrorCode;
  const message = failure.details.split(/\s+/).join(" ").trim();
  const [details] = failure.metadata.get("grpc-status-details-bin");
  const facts = readDetails(details instanceof Uint8Array ? details : undefined);
  if (code === "INTERNAL" && facts.reason === "" && /serializ/.test(message)) {
    return invalid(message, failure);
  }
  if (code === "INTERNAL" && LOST.test(message)) {
    return new PinfoldError(message, { code: "UNAVAILABLE", cause: failure });
  }
  if (code === "UNAVAILABLE" && facts.reason === "" && CERTIFICATE.test(message)) {
    facts.reason = "TLS_HANDSHAKE";
  }
  return new PinfoldError(message, { ...facts, code, cause: failure });
}

function invalid(message: string, cause: unknown): PinfoldError {
  return new PinfoldError(message, {
    code: "INVALID_ARGUMENT",
    reason: "INVALID_ARGUMENT",
    cause,
  });
}

function isServiceError(failure: unknown): failure is ServiceError {
  return (
    failure instanceof Error &&
    "details" in failure &&
    "metadata" in failure &&
    typeof (failure as ServiceError).code === "number"
  );
}
