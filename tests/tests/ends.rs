//! A text ends where it must: at end tokens, stop tokens and limits, wherever in a round they come.

use anyhow::Result;
use proto::v1::finished::Matched;
use proto::v1::{FinishReason, GenerateRequest, LogprobsMode, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Answer, Oracle, Prompting, text_prompt};

const AGREEMENTS: [Agreement; 3] = [Agreement::Always, Agreement::Half, Agreement::Never];
const DRAFT_LENGTHS: [u32; 4] = [0, 1, 3, 8];

fn request(seed: u64) -> GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(seed)
        .tokens(16)
        .logprobs(2, LogprobsMode::RawLogprobs)
}

/// Where `token` first comes in `ids`.
fn first(ids: &[u32], token: u32) -> usize {
    ids.iter().position(|id| *id == token).unwrap_or(ids.len())
}

/// `answer` is `plain` cut after `count` tokens.
fn is_cut(answer: &Answer, plain: &Answer, count: usize, what: &str) {
    assert_eq!(answer.ids, plain.ids[..count], "{what}: ids");
    assert_eq!(answer.logprobs, plain.logprobs[..count], "{what}: logprobs");
}

#[tokio::test]
async fn a_stop_token_at_any_offset_ends_the_text_right_there() -> Result<()> {
    for agreement in AGREEMENTS {
        let tiny = TinyCluster::start(&[agreement]).await?;
        let oracle = Oracle::load(&tiny.target)?;
        let plain = tiny.client.generate(request(1).plain()).await?;
        let cases: Vec<_> = (0..=12)
            .flat_map(|offset| DRAFT_LENGTHS.map(|k| (offset, k)))
            .flat_map(|(offset, k)| [false, true].map(|kept| (offset, k, kept)))
            .collect();
        let requests = cases.iter().map(|(offset, k, kept)| {
            request(1).drafting(*k).stopping(|stop| {
                stop.token_ids = vec![plain.ids[*offset]];
                stop.include_stop_string = *kept;
            })
        });
        let answers = tiny.client.generate_all(requests).await?;
        for ((offset, k, kept), answer) in cases.iter().zip(&answers) {
            let what = format!("{agreement:?}, offset {offset}, k = {k}, kept: {kept}");
            let token = plain.ids[*offset];
            let end = first(&plain.ids, token);
            is_cut(answer, &plain, end + 1, &what);
            let shown = if *kept { end + 1 } else { end };
            assert_eq!(answer.text, oracle.decode(&plain.ids[..shown])?, "{what}");
            assert_eq!(answer.reason, FinishReason::Stop, "{what}");
            assert_eq!(answer.matched, Some(Matched::StopTokenId(token)), "{what}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn of_a_limit_and_a_stop_token_the_earlier_wins_and_on_a_tie_the_stop() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Always]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let plain = tiny.client.generate(request(2).plain()).await?;
    let cases: Vec<_> = (1..=9_usize)
        .flat_map(|limit| (0..=9_usize).map(move |offset| (limit, offset)))
        .flat_map(|(limit, offset)| [1, 3, 8].map(|k| (limit, offset, k)))
        .collect();
    let requests = cases.iter().map(|(limit, offset, k)| {
        let token = plain.ids[*offset];
        let request = request(2).tokens(*limit as u32).drafting(*k);
        request.stopping(|stop| stop.token_ids.push(token))
    });
    let answers = tiny.client.generate_all(requests).await?;
    for ((limit, offset, k), answer) in cases.iter().zip(&answers) {
        let what = format!("limit {limit}, stop at {offset}, k = {k}");
        let token = plain.ids[*offset];
        let stop = first(&plain.ids, token) + 1;
        is_cut(answer, &plain, stop.min(*limit), &what);
        if stop <= *limit {
            assert_eq!(answer.reason, FinishReason::Stop, "{what}");
            assert_eq!(answer.matched, Some(Matched::StopTokenId(token)), "{what}");
        } else {
            assert_eq!(answer.reason, FinishReason::Length, "{what}");
            assert_eq!(answer.matched, None, "{what}");
            assert_eq!(answer.text, oracle.decode(&answer.ids)?, "{what}");
        }
    }
    Ok(())
}

/// A text that the model ends itself, after some tokens: its end token is made likely.
fn ending(seed: u64, end: u32) -> GenerateRequest {
    request(seed)
        .at_most(60)
        .choosing(|s| _ = s.logit_bias.insert(end, 6.0))
}

#[tokio::test]
async fn the_models_own_end_ends_the_text_at_whatever_offset_it_comes() -> Result<()> {
    let mut ends = std::collections::HashSet::new();
    for agreement in AGREEMENTS {
        let tiny = TinyCluster::start(&[agreement]).await?;
        let oracle = Oracle::load(&tiny.target)?;
        let end = oracle.end_token();
        let seeds = 0..32;
        let plain = seeds.clone().map(|seed| ending(seed, end).plain());
        let plain = tiny.client.generate_all(plain).await?;
        for k in DRAFT_LENGTHS {
            let drafted = seeds.clone().map(|seed| ending(seed, end).drafting(k));
            let answers = tiny.client.generate_all(drafted).await?;
            for ((answer, plain), seed) in answers.iter().zip(&plain).zip(seeds.clone()) {
                let what = format!("{agreement:?}, k = {k}, seed {seed}");
                is_cut(answer, plain, plain.ids.len(), &what);
                assert_eq!(answer.text, oracle.decode(&answer.ids)?, "{what}");
                let ended = oracle
                    .vocabulary()
                    .eos_ids
                    .contains(&answer.ids[answer.ids.len() - 1]);
                let expected = if ended {
                    FinishReason::Stop
                } else {
                    FinishReason::Length
                };
                assert_eq!(answer.reason, expected, "{what}");
                let before = &answer.ids[..answer.ids.len() - 1];
                assert!(!before.contains(&end), "{what}: nothing follows the end");
                if ended {
                    let last = answer.ids.last().copied();
                    assert_eq!(answer.matched, last.map(Matched::StopTokenId), "{what}");
                    ends.insert(answer.ids.len());
                }
            }
        }
    }
    assert!(ends.len() >= 8, "ends at many offsets: {ends:?}");
    Ok(())
}

#[tokio::test]
async fn where_the_end_is_ignored_the_text_goes_on_past_it() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let end = Oracle::load(&tiny.target)?.end_token();
    let ended = (0..16).map(|seed| ending(seed, end).drafting(3));
    let ended = tiny.client.generate_all(ended).await?;
    let endless = (0..16).map(|seed| ending(seed, end).tokens(60).drafting(3));
    let endless = tiny.client.generate_all(endless).await?;
    for (ended, endless) in ended.iter().zip(&endless) {
        assert_eq!(endless.reason, FinishReason::Length);
        assert_eq!(endless.ids.len(), 60);
        assert_eq!(endless.ids[..ended.ids.len()], ended.ids);
    }
    let stopped = ended.iter().filter(|it| it.reason == FinishReason::Stop);
    assert!(stopped.count() >= 4, "some texts do end");
    Ok(())
}

#[tokio::test]
async fn no_end_comes_before_min_tokens_and_at_once_after_them() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let end = Oracle::load(&tiny.target)?.end_token();
    let eager = |least: u32, k: u32| {
        ending(4, end)
            .drafting(k)
            .stopping(|stop| stop.min_tokens = Some(least))
            .choosing(|s| _ = s.logit_bias.insert(end, 100.0))
    };
    let cases: Vec<_> = (0..=12)
        .flat_map(|least| DRAFT_LENGTHS.map(|k| (least, k)))
        .collect();
    let requests = cases.iter().map(|(least, k)| eager(*least, *k));
    for ((least, k), answer) in cases.iter().zip(tiny.client.generate_all(requests).await?) {
        let what = format!("at least {least}, k = {k}");
        assert_eq!(answer.ids.len(), *least as usize + 1, "{what}");
        assert_eq!(first(&answer.ids, end), *least as usize, "{what}");
        assert_eq!(answer.reason, FinishReason::Stop, "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn before_min_tokens_stop_tokens_cannot_be_chosen_either() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let plain = tiny.client.generate(request(5).plain()).await?;
    for k in DRAFT_LENGTHS {
        let stop = plain.ids[0];
        let request = request(5).drafting(k).stopping(|it| {
            it.token_ids = vec![stop];
            it.min_tokens = Some(6);
        });
        let answer = tiny.client.generate(request).await?;
        assert!(answer.ids.len() >= 6, "k = {k}");
        assert!(first(&answer.ids, stop) >= 6, "k = {k}: {:?}", answer.ids);
    }
    Ok(())
}
