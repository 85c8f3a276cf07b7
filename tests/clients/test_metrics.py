"""A Prometheus parser reads /metrics, and the counters are the sums of what requests were told."""

from collections import Counter

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics


def sums(text):
    """What the samples of each name add up to, whatever their labels."""
    sums = Counter()
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value
    return sums


def test_counters_are_sums_of_requests(client, model, fetch):
    before = sums(fetch("/metrics"))
    total = {"drafts": 0, "drafted": 0, "accepted": 0}
    for length in (4, 2, 6):
        fixed = {"speculative": {"n_min": length, "n_max": length}}
        answer = client.completions.create(
            model=model, prompt="1, 2, 3,", max_tokens=16, temperature=0, extra_body=fixed
        )
        told = answer.metrics["speculative_decoding"]
        total["drafts"] += sum(told["acceptance_histogram"])
        total["drafted"] += told["num_draft_tokens"]
        total["accepted"] += told["num_accepted_draft_tokens"]
    after = sums(fetch("/metrics"))

    def grown(name):
        return after[name] - before[name]

    assert grown("specdec_spec_decode_num_drafts_total") == total["drafts"]
    assert grown("specdec_spec_decode_num_draft_tokens_total") == total["drafted"]
    assert grown("specdec_spec_decode_num_accepted_tokens_total") == total["accepted"]
    assert total["drafted"] > 0


def test_the_openmetrics_format_is_served_to_who_asks(fetch):
    text = fetch("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    families = {family.name for family in openmetrics.text_string_to_metric_families(text)}
    assert "specdec_requests_running" in families
    assert not any(line.split("{")[0].endswith("_created") for line in text.splitlines())
