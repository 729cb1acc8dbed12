/** google.rpc.Status with its ErrorInfo and RetryInfo: three small messages, read field by field. */

import { BinaryReader } from "@bufbuild/protobuf/wire";

const DOMAIN = "pinfold";

export interface Details {
  reason: string;
  metadata: Record<string, string>;
  retryAfterMs: number | undefined;
}

export function readDetails(status: Uint8Array | undefined): Details {
  const found: Details = { reason: "", metadata: {}, retryAfterMs: undefined };
  if (status === undefined) {
    return found;
  }
  try {
    readFields(status, { 3: (reader) => readDetail(reader.bytes(), found) });
  } catch {
    // The plain status is still an answer.
  }
  return found;
}

function readDetail(any: Uint8Array, found: Details) {
  let typeUrl = "";
  let value = new Uint8Array();
  readFields(any, {
    1: (reader) => {
      typeUrl = reader.string();
    },
    2: (reader) => {
      value = new Uint8Array(reader.bytes());
    },
  });
  if (typeUrl.endsWith("/google.rpc.ErrorInfo")) {
    const { domain, reason, metadata } = readErrorInfo(value);
    if (domain === DOMAIN) {
      Object.assign(found, { reason, metadata });
    }
  } else if (typeUrl.endsWith("/google.rpc.RetryInfo")) {
    found.retryAfterMs = readRetryInfo(value);
  }
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
