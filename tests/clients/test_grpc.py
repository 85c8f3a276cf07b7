"""A gRPC client that knows nothing but the port works: it learns the rest by reflection."""

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "specdec.v1.Generation"


@pytest.fixture(scope="module")
def call(channel):
    """Calls a method by name, with a request as a dictionary."""
    database = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE in database.get_services()
    service = descriptor_pool.DescriptorPool(database).FindServiceByName(SERVICE)

    def call(name, **fields):
        method = service.FindMethodByName(name)
        kind = channel.unary_stream if method.server_streaming else channel.unary_unary
        request = message_factory.GetMessageClass(method.input_type)(**fields)
        answer = message_factory.GetMessageClass(method.output_type)
        path = f"/{SERVICE}/{name}"
        serialize = type(request).SerializeToString
        return kind(path, request_serializer=serialize, response_deserializer=answer.FromString)(
            request, timeout=60
        )

    return call


def test_text_is_generated(call):
    (model, *_) = call("ListModels").models
    ids = call("Tokenize", prompt={"text": "1, 2, 3,"}).token_ids
    assert call("Detokenize", token_ids=ids).text.endswith("1, 2, 3,")
    events = call(
        "Generate",
        model=model.id,
        prompt={"text": "1, 2, 3,"},
        sampling={"temperature": 0},
        stop={"max_tokens": 8, "ignore_eos": True},
    )
    tokens, finished = 0, None
    for event in events:
        tokens += len(event.delta.token_ids)
        finished = event.finished if event.HasField("finished") else finished
    assert tokens == finished.usage.completion_tokens == 8
    assert finished.timings.predicted_ms > 0


def test_errors_carry_rich_details(call):
    with pytest.raises(grpc.RpcError) as caught:
        list(call("Generate", prompt={"text": "Hi"}, sampling={"top_p": 2}))
    error = caught.value
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    violations = error_details_pb2.BadRequest()
    assert any(detail.Unpack(violations) for detail in status.details)
    assert violations.field_violations[0].field == "sampling.top_p"


def test_the_health_service_says_that_it_serves(channel):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
