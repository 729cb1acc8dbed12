import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

const CODES = {
  [Code.Canceled]: "CANCELLED",
  [Code.Unknown]: "UNKNOWN",
  [Code.InvalidArgument]: "INVALID_ARGUMENT",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.NotFound]: "NOT_FOUND",
  [Code.AlreadyExists]: "ALREADY_EXISTS",
  [Code.PermissionDenied]: "PERMISSION_DENIED",
  [Code.ResourceExhausted]: "RESOURCE_EXHAUSTED",
  [Code.FailedPrecondition]: "FAILED_PRECONDITION",
  [Code.Aborted]: "ABORTED",
  [Code.OutOfRange]: "OUT_OF_RANGE",
  [Code.Unimplemented]: "UNIMPLEMENTED",
  [Code.Internal]: "INTERNAL",
  [Code.Unavailable]: "UNAVAILABLE",
  [Code.DataLoss]: "DATA_LOSS",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
} as const;

/** A gRPC status code by name. */
export type ErrorCode = (typeof CODES)[Code];

/** What goes with a {@link PinfoldError}. */
export interface ErrorFacts {
  code: ErrorCode;
  reason?: string;
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
   * An UPPER_SNAKE word (see docs/errors.md). Empty when the error came from below, such as a
   * lost connection.
   */
  readonly reason: string;
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

/** The error for a failed RPC, with what its status details say. */
export function fromRpc(failure: unknown): PinfoldError {
  if (failure instanceof PinfoldError) {
    return failure;
  }
  const error = ConnectError.from(failure);
  const details = readDetails(error);
  const message = error.rawMessage.split(/\s+/).join(" ").trim();
  const facts = { ...details, cause: failure };
  if (details.reason === "") {
    const below = causeBelow(error);
    if (below !== undefined) {
      return new PinfoldError(message, { ...facts, ...below });
    }
  }
  return new PinfoldError(message, { ...facts, code: CODES[error.code] ?? "UNKNOWN" });
}

// What Node says of a certificate that it does not trust.
const CERTIFICATE = /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|EPROTO$)/;
const LOST = /^(ERR_HTTP2_|ERR_STREAM_|ERR_SOCKET_)/;

/**
 * A failure of the socket or of HTTP/2. Connect gives these codes of its own that depend on the
 * moment (INTERNAL, ABORTED, UNKNOWN); for a caller they all are "not reached".
 */
function causeBelow(error: ConnectError): { code: ErrorCode; reason: string } | undefined {
  for (let cause: unknown = error.cause; cause instanceof Error; cause = cause.cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    if (typeof code !== "string") {
      continue;
    }
    if (CERTIFICATE.test(code)) {
      return { code: "UNAVAILABLE", reason: "TLS_HANDSHAKE" };
    }
    if (syscall !== undefined || LOST.test(code)) {
      return { code: "UNAVAILABLE", reason: "" };
    }
  }
  return undefined;
}

interface Details {
  reason: string;
  metadata: Record<string, string>;
  retryAfterMs: number | undefined;
}

/** google.rpc.ErrorInfo and RetryInfo of a status; two small messages, read field by field. */
function readDetails(error: ConnectError): Details {
  const found: Details = { reason: "", metadata: {}, retryAfterMs: undefined };
  for (const detail of error.details) {
    if (!("type" in detail)) {
      continue;
    }
    try {
      if (detail.type === "google.rpc.ErrorInfo") {
        const info = readErrorInfo(detail.value);
        if (info.domain === "pinfold") {
          found.reason = info.reason;
          found.metadata = info.metadata;
        }
      } else if (detail.type === "google.rpc.RetryInfo") {
        found.retryAfterMs = readRetryInfo(detail.value);
      }
    } catch {
      // The plain status is still an answer.
    }
  }
  return found;
}

function readErrorInfo(data: Uint8Array) {
  const info = { reason: "", domain: "", metadata: {} as Record<string, string> };
  readFields(data, {
    1: (reader) => {
      info.reason = reader.string();
    },
    2: (reader) => {
      info.domain = reader.string();
    },
    3: (reader) => {
      let key = "";
      let value = "";
      readFields(reader.bytes(), {
        1: (entry) => {
          key = entry.string();
        },
        2: (entry) => {
          value = entry.string();
        },
      });
      info.metadata[key] = value;
    },
  });
  return info;
}

function readRetryInfo(data: Uint8Array): number {
  let ms = 0;
  readFields(data, {
    1: (reader) =>
      readFields(reader.bytes(), {
        1: (delay) => {
          ms += Number(delay.int64()) * 1000;
        },
        2: (delay) => {
          ms += delay.int32() / 1e6;
        },
      }),
  });
  return ms;
}

function readFields(data: Uint8Array, fields: Record<number, (reader: BinaryReader) => void>) {
  const reader = new BinaryReader(data);
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    const field = fields[number];
    if (field === undefined) {
      reader.skip(wireType, number);
    } else {
      field(reader);
    }
  }
}
