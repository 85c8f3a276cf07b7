//! Stop strings end a text wherever tokens, characters and rounds begin and end.

use anyhow::{Context as _, Result};
use proto::v1::finished::Matched;
use proto::v1::{FinishReason, GenerateRequest, LogprobsMode, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster, byte_token};
use specdec_tests::{Answer, Client, Oracle, Prompting, text_prompt};

const DRAFT_LENGTHS: [u32; 4] = [0, 1, 3, 8];

/// The model's own text: letters, control characters, invalid bytes.
fn wild(seed: u64) -> GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(seed)
        .tokens(32)
        .logprobs(1, LogprobsMode::RawLogprobs)
}

/// Few letters, each a token: the text of a token is certain at once.
fn letters(seed: u64) -> GenerateRequest {
    let letters = b"abcde ".map(byte_token).to_vec();
    wild(seed).choosing(|s| s.allowed_token_ids = letters)
}

/// Texts over the bytes of one character each, of two to four bytes: whole characters, and bytes that
/// make none. Of some seeds, those whose text holds the most.
async fn many_bytes(client: &Client) -> Result<Vec<GenerateRequest>> {
    let mut texts = Vec::new();
    for character in ["ž", "日", "🐴"] {
        let bytes: Vec<u32> = character.bytes().map(byte_token).collect();
        let request = |seed| wild(seed).choosing(|s| s.allowed_token_ids = bytes.clone());
        let answers = client.generate_all((0..40).map(request)).await?;
        let whole = |answer: &Answer| {
            let characters = answer.text.chars();
            characters
                .filter(|it| *it != char::REPLACEMENT_CHARACTER)
                .count()
        };
        let best = (0..).zip(&answers).max_by_key(|(_, answer)| whole(answer));
        let (seed, answer) = best.context("answers")?;
        assert!(whole(answer) >= 3, "seed {seed}: {}", answer.text);
        texts.push(request(seed));
    }
    Ok(texts)
}

/// A stop string, and how the text is to end.
struct Case {
    stop: String,
    k: u32,
    kept: bool,
    limit: Option<u32>,
}

impl Case {
    fn request(&self, text: &GenerateRequest) -> GenerateRequest {
        let request = text.clone().drafting(self.k).stop_string(&self.stop);
        request.stopping(|stop| {
            stop.include_stop_string = self.kept;
            stop.max_tokens = self.limit.or(stop.max_tokens);
        })
    }
}

/// Every piece of `text` of some lengths that begins among its first characters.
fn pieces(text: &str, lengths: &[usize]) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let starts = 0..characters.len().saturating_sub(12).min(18);
    let piece = |start: usize, length: &usize| characters[start..start + length].iter().collect();
    starts
        .flat_map(|start| lengths.iter().map(move |length| (start, length)))
        .map(|(start, length)| piece(start, length))
        .collect()
}

/// How many tokens it takes for the text to hold `stop`; none where characters that are no text make
/// that hard to say.
fn tokens_to(oracle: &Oracle, ids: &[u32], stop: &str) -> Result<Option<usize>> {
    if stop.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(None);
    }
    for count in 1..=ids.len() {
        if oracle.decode(&ids[..count])?.contains(stop) {
            return Ok(Some(count));
        }
    }
    Ok(Some(ids.len()))
}

/// `answer` is `plain`, cut at the first `case.stop`.
fn check_stopped(oracle: &Oracle, plain: &Answer, case: &Case, answer: &Answer) -> Result<()> {
    let what = format!("{:?}, k = {}, kept: {}", case.stop, case.k, case.kept);
    let found = plain.text.find(&case.stop).unwrap_or(plain.text.len());
    let shown = if case.kept {
        found + case.stop.len()
    } else {
        found
    };
    assert_eq!(answer.text, plain.text[..shown], "{what}");
    assert!(case.kept || !answer.text.contains(&case.stop), "{what}");
    assert_eq!(answer.reason, FinishReason::Stop, "{what}");
    let matched = Some(Matched::StopString(case.stop.clone()));
    assert_eq!(answer.matched, matched, "{what}");
    let count = answer.ids.len();
    assert_eq!(answer.ids, plain.ids[..count], "{what}");
    assert_eq!(answer.logprobs, plain.logprobs[..count], "{what}");
    if let Some(expected) = tokens_to(oracle, &plain.ids, &case.stop)? {
        assert_eq!(count, expected, "{what}: not one token more");
    }
    Ok(())
}

async fn check(tiny: &TinyCluster, text: &GenerateRequest) -> Result<()> {
    let oracle = Oracle::load(&tiny.target)?;
    let plain = tiny.client.generate(text.clone().plain()).await?;
    assert_eq!(plain.text, oracle.decode(&plain.ids)?, "the whole text");
    let mut cases = Vec::new();
    for (index, stop) in pieces(&plain.text, &[1, 2, 3, 9]).into_iter().enumerate() {
        let kept = index % 2 == 0;
        cases.extend(DRAFT_LENGTHS.map(|k| Case {
            stop: stop.clone(),
            k,
            kept,
            limit: None,
        }));
    }
    let requests = cases.iter().map(|case| case.request(text));
    let answers = tiny.client.generate_all(requests).await?;
    for (case, answer) in cases.iter().zip(&answers) {
        check_stopped(&oracle, &plain, case, answer)?;
    }
    // Whatever k is, the same token is the last one.
    for round in answers.chunks(DRAFT_LENGTHS.len()) {
        assert!(round.iter().all(|answer| answer.ids == round[0].ids));
    }
    Ok(())
}

#[tokio::test]
async fn any_piece_of_a_text_can_stop_it() -> Result<()> {
    for agreement in [Agreement::Always, Agreement::Half] {
        let tiny = TinyCluster::start(&[agreement]).await?;
        check(&tiny, &wild(1)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn any_characters_can_stop_a_text_whatever_bytes_they_take() -> Result<()> {
    for agreement in [Agreement::Always, Agreement::Never] {
        let tiny = TinyCluster::start(&[agreement]).await?;
        for text in many_bytes(&tiny.client).await? {
            check(&tiny, &text).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn of_a_limit_and_a_stop_string_the_earlier_wins_and_on_a_tie_the_string() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Always]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let text = letters(3);
    let plain = tiny.client.generate(text.clone().plain()).await?;
    let cases: Vec<Case> = pieces(&plain.text, &[1, 3])
        .into_iter()
        .flat_map(|stop| (1..=16).map(move |limit| (stop.clone(), limit)))
        .map(|(stop, limit)| Case {
            stop,
            k: 1 + limit % 8,
            kept: limit % 2 == 0,
            limit: Some(limit),
        })
        .collect();
    let requests = cases.iter().map(|case| case.request(&text));
    for (case, answer) in cases.iter().zip(tiny.client.generate_all(requests).await?) {
        let limit = case.limit.unwrap_or_default() as usize;
        match tokens_to(&oracle, &plain.ids, &case.stop)? {
            Some(needed) if needed <= limit => check_stopped(&oracle, &plain, case, &answer)?,
            _ => {
                let what = format!("{:?} within {limit} tokens", case.stop);
                assert_eq!(answer.ids, plain.ids[..limit], "{what}");
                assert_eq!(answer.text, oracle.decode(&answer.ids)?, "{what}");
                assert_eq!(answer.reason, FinishReason::Length, "{what}");
                assert_eq!(answer.matched, None, "{what}");
            }
        }
    }
    Ok(())
}

/// Asks for `text` with `stops`, none of which comes, with every draft length: nothing is missing.
async fn check_whole(
    client: &Client,
    text: &GenerateRequest,
    plain: &Answer,
    stops: &[String],
) -> Result<()> {
    let requests = DRAFT_LENGTHS.map(|k| {
        let request = text.clone().drafting(k);
        stops
            .iter()
            .fold(request, |request, stop| request.stop_string(stop))
    });
    for answer in client.generate_all(requests).await? {
        assert_eq!(answer.text, plain.text, "{stops:?}");
        assert_eq!(answer.ids, plain.ids, "{stops:?}");
        assert_eq!(answer.reason, plain.reason, "{stops:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_only_begins_like_a_stop_string_is_given_out_in_the_end() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let mut texts = many_bytes(&tiny.client).await?;
    texts.extend([wild(4), letters(4)]);
    for text in texts {
        let plain = tiny.client.generate(text.clone().plain()).await?;
        // Beginnings that the text goes on from in another way.
        let begun = pieces(&plain.text, &[1, 2, 5]);
        let begun: Vec<String> = begun.iter().map(|it| format!("{it}\u{2603}")).collect();
        check_whole(&tiny.client, &text, &plain, &begun).await?;
        // Beginnings that are the end of the text.
        let count = plain.text.chars().count();
        for length in 1..=6 {
            let tail: String = plain.text.chars().skip(count - length).collect();
            check_whole(&tiny.client, &text, &plain, &[tail + "\u{2603}"]).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn of_several_stop_strings_the_one_that_is_complete_first_ends_the_text() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let text = letters(5);
    let plain = tiny.client.generate(text.clone().plain()).await?;
    let pieces = pieces(&plain.text, &[2]);
    for (index, later) in pieces.iter().enumerate().skip(3) {
        let earlier = &pieces[index - 3];
        let first = [earlier, later]
            .into_iter()
            .min_by_key(|stop| plain.text.find(*stop).map(|at| at + stop.len()));
        for k in DRAFT_LENGTHS {
            let case = Case {
                stop: first.cloned().unwrap_or_default(),
                k,
                kept: false,
                limit: None,
            };
            let mut request = case.request(&text);
            request = request.stopping(|stop| stop.strings = vec![later.clone(), earlier.clone()]);
            let answer = tiny.client.generate(request).await?;
            check_stopped(&oracle, &plain, &case, &answer)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_text_of_the_first_min_tokens_counts_towards_no_stop_string() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let text = letters(6);
    let plain = tiny.client.generate(text.clone().plain()).await?;
    let cases: Vec<_> = pieces(&plain.text, &[1, 2])
        .into_iter()
        .flat_map(|stop| [1, 2, 5, 9, 20].map(|least| (stop.clone(), least)))
        .flat_map(|(stop, least)| [0, 3, 8].map(|k| (stop.clone(), least, k)))
        .collect();
    let requests = cases.iter().map(|(stop, least, k)| {
        let request = text.clone().drafting(*k).stop_string(stop);
        request.stopping(|it| it.min_tokens = Some(*least))
    });
    let answers = tiny.client.generate_all(requests).await?;
    for ((stop, least, k), answer) in cases.iter().zip(answers) {
        let what = format!("{stop:?} after {least} tokens, k = {k}");
        // A letter is a token.
        let free = *least as usize;
        let found = plain.text[free..].find(stop.as_str());
        let shown = found.map_or(plain.text.len(), |at| free + at);
        assert_eq!(answer.text, plain.text[..shown], "{what}");
        assert_eq!(
            answer.reason == FinishReason::Stop,
            found.is_some(),
            "{what}"
        );
    }
    Ok(())
}
