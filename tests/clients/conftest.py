"""What the tests share: where the coordinator is, and the official clients that talk to it.

`tests/tests/clients.rs` starts a coordinator with its workers and runs these tests against it:
SPECDEC_URL is its address, http://HOST:PORT, and nothing else is known.
"""

import os
import urllib.request

import grpc
import openai
import pytest


@pytest.fixture(scope="session")
def url():
    return os.environ["SPECDEC_URL"]


@pytest.fixture(scope="session")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def model(client):
    """The target: the first of the models that are served."""
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def channel(url):
    with grpc.insecure_channel(url.removeprefix("http://")) as channel:
        yield channel


@pytest.fixture
def fetch(url):
    def fetch(path, **headers):
        request = urllib.request.Request(url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read().decode()

    return fetch
