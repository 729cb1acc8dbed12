/** Typed clients of the generated services, over a gRPC channel. */

import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { GenService, GenServiceMethods } from "@bufbuild/protobuf/codegenv2";
import type { Client, CallOptions as GrpcOptions, Metadata } from "@grpc/grpc-js";

export interface RpcOptions {
  signal?: AbortSignal;
  /** The RPC fails with DEADLINE_EXCEEDED after it. */
  timeoutMs?: number;
}

type Method<M> = M extends { methodKind: infer K; input: infer I; output: infer O }
  ? I extends DescMessage
    ? O extends DescMessage
      ? K extends "unary"
        ? (request: MessageInitShape<I>, options?: RpcOptions) => Promise<MessageShape<O>>
        : K extends "server_streaming"
          ? (request: MessageInitShape<I>, options?: RpcOptions) => AsyncIterable<MessageShape<O>>
          : (
              requests: AsyncIterable<MessageInitShape<I>>,
              options?: RpcOptions,
            ) => AsyncIterable<MessageShape<O>>
      : never
    : never
  : never;

/** One function for each RPC of a service. They reject with grpc-js's `ServiceError`. */
export type ServiceClient<S> =
  S extends GenService<infer Methods>
    ? { readonly [Name in keyof Methods]: Method<Methods[Name]> }
    : never;

export function serviceClient<S extends GenService<GenServiceMethods>>(
  service: S,
  client: Client,
  metadata: Metadata,
): ServiceClient<S> {
  const entries = service.methods.map((method) => [
    method.localName,
    implementation(method, client, metadata),
  ]);
  return Object.fromEntries(entries) as ServiceClient<S>;
}

function implementation(method: DescMethod, client: Client, metadata: Metadata) {
  switch (method.methodKind) {
    case "unary":
      return unary(method, client, metadata);
    case "server_streaming":
      return serverStream(method, client, metadata);
    case "bidi_streaming":
      return bidiStream(method, client, metadata);
    case "client_streaming":
      throw new Error(`${method.name}: no such RPCs in this contract`);
  }
}

function unary(method: DescMethod, client: Client, metadata: Metadata) {
  const { path, serialize, deserialize } = wire(method);
  return (request: object, options: RpcOptions = {}) =>
    new Promise<object>((resolve, reject) => {
      const call = client.makeUnaryRequest(
        path,
        serialize,
        deserialize,
        request,
        metadata,
        deadline(options),
        (error, response) => {
          release();
          if (error === null && response !== undefined) {
            resolve(response);
          } else {
            reject(error);
          }
        },
      );
      const release = onAbort(options.signal, () => call.cancel());
    });
}

function serverStream(method: DescMethod, client: Client, metadata: Metadata) {
  const { path, serialize, deserialize } = wire(method);
  return async function* (request: object, options: RpcOptions = {}) {
    const call = client.makeServerStreamRequest(
      path,
      serialize,
      deserialize,
      request,
      metadata,
      deadline(options),
    );
    const release = onAbort(options.signal, () => call.cancel());
    try {
      yield* call;
    } finally {
      release();
      call.cancel();
    }
  };
}

function bidiStream(method: DescMethod, client: Client, metadata: Metadata) {
  const { path, serialize, deserialize } = wire(method);
  return async function* (requests: AsyncIterable<object>, options: RpcOptions = {}) {
    const call = client.makeBidiStreamRequest(
      path,
      serialize,
      deserialize,
      metadata,
      deadline(options),
    );
    const release = onAbort(options.signal, () => call.cancel());
    const closed = new Promise<void>((resolve) => call.once("close", resolve));
    const feed = async () => {
      for await (const request of requests) {
        if (call.destroyed) {
          return;
        }
        if (!call.write(request)) {
          await Promise.race([closed, new Promise((resolve) => call.once("drain", resolve))]);
        }
      }
      call.end();
    };
    feed().catch((error: Error) => call.destroy(error));
    try {
      yield* call;
    } finally {
      release();
      call.cancel();
      call.destroy();
    }
  };
}

function wire(method: DescMethod) {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    serialize: (message: object) =>
      Buffer.from(toBinary(method.input, create(method.input, message as never))),
    // Else all `bytes` would be Buffers, whose methods differ from what their type says.
    deserialize: (data: Buffer): object =>
      fromBinary(method.output, new Uint8Array(data.buffer, data.byteOffset, data.length)),
  };
}

function deadline({ timeoutMs }: RpcOptions): GrpcOptions {
  return timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
}

/** Returns what takes the listener away again. */
function onAbort(signal: AbortSignal | undefined, abort: () => void): () => void {
  if (signal === undefined) {
    return () => {};
  }
  if (signal.aborted) {
    abort();
    return () => {};
  }
  signal.addEventListener("abort", abort, { once: true });
  return () => signal.removeEventListener("abort", abort);
}
