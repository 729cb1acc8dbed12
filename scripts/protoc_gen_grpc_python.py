"""A protoc plugin for the Python gRPC stubs.

The generator is built into `grpc_tools.protoc` and has no plugin binary of its own, so buf
cannot start it. This reads a plugin's request and hands it to that protoc.
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


def main() -> int:
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory, "image.binpb")
        image.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
        out = Path(directory, "out")
        out.mkdir()
        arguments = ["protoc", f"--descriptor_set_in={image}", f"--grpc_python_out={out}"]
        if protoc.main([*arguments, *request.file_to_generate]) != 0:
            response.error = "grpc_tools.protoc failed; its message is above"
        for path in sorted(out.rglob("*.py")):
            response.file.add(name=str(path.relative_to(out)), content=path.read_text())
    sys.stdout.buffer.write(response.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main())
