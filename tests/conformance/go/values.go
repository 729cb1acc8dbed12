package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pinfold/pinfold/clients/go"
)

// objectOf is an answer as JSON: a message by protobuf's own mapping with the names of the
// .proto files, or a map of such.
func objectOf(answer any) (any, error) {
	switch answer := answer.(type) {
	case nil:
		return map[string]any{}, nil
	case proto.Message:
		data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(answer)
		if err != nil {
			return nil, err
		}
		var object any
		return object, unmarshal(data, &object)
	case map[string]any:
		result := map[string]any{}
		for key, value := range answer {
			object, err := objectOf(value)
			if err != nil {
				return nil, err
			}
			if !isDefault(object) {
				result[key] = object
			}
		}
		return result, nil
	case []any:
		result := make([]any, len(answer))
		for i, value := range answer {
			object, err := objectOf(value)
			if err != nil {
				return nil, err
			}
			result[i] = object
		}
		return result, nil
	default:
		return answer, nil
	}
}

func unmarshal(data []byte, into *any) error {
	return json.Unmarshal(data, into)
}

// isDefault: left out, as protobuf's mapping leaves out default values.
func isDefault(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case bool:
		return !value
	case int:
		return value == 0
	case int64:
		return value == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// listOf makes a list of messages one that objectOf takes.
func listOf[M any](messages []M) []any {
	result := make([]any, len(messages))
	for i, message := range messages {
		result[i] = message
	}
	return result
}

func errorOf(err error) map[string]any {
	failure, ok := errors.AsType[*pinfold.Error](err)
	if !ok {
		return map[string]any{"code": code.Code_name[int32(status.Code(err))], "message": err.Error()}
	}
	object := map[string]any{
		"code":    code.Code_name[int32(failure.Code)],
		"message": failure.Message,
	}
	if failure.Reason != "" {
		object["reason"] = string(failure.Reason)
	}
	if len(failure.Metadata) > 0 {
		metadata := map[string]any{}
		for key, value := range failure.Metadata {
			metadata[key] = value
		}
		object["metadata"] = metadata
	}
	return object
}

// find is the value at a dotted path; a number is an index.
func find(value any, path string) any {
	if path == "" {
		return value
	}
	key, rest, _ := strings.Cut(path, ".")
	switch value := value.(type) {
	case map[string]any:
		return find(value[key], rest)
	case []any:
		index, err := strconv.Atoi(key)
		if err != nil || index < 0 || index >= len(value) {
			return nil
		}
		return find(value[index], rest)
	default:
		return nil
	}
}

// pick keeps the values at some dotted paths; `*` goes through a list. What is not there is left
// out.
func pick(value any, paths []string) any {
	switch value := value.(type) {
	case map[string]any:
		result := map[string]any{}
		for key, inner := range value {
			if rest, whole := below(paths, key); whole {
				result[key] = inner
			} else if len(rest) > 0 {
				result[key] = pick(inner, rest)
			}
		}
		return result
	case []any:
		rest, whole := below(paths, "*")
		if whole {
			return value
		}
		result := make([]any, len(value))
		for i, inner := range value {
			result[i] = pick(inner, rest)
		}
		return result
	default:
		return value
	}
}

func below(paths []string, key string) (rest []string, whole bool) {
	for _, path := range paths {
		first, inner, more := strings.Cut(path, ".")
		if first != key {
			continue
		}
		if !more {
			return nil, true
		}
		rest = append(rest, inner)
	}
	return rest, false
}
