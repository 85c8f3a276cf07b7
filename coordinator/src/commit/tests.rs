use super::*;
use crate::request::StopRules;
use crate::stop::StopStrings;
use crate::testing::{self, CONTEXT, END_TOKEN, byte_token};
use proptest::prelude::*;

fn run(tokens: &[TokenId]) -> Vec<NewToken> {
    let last = tokens.len() - 1;
    let token = |(index, id): (usize, &TokenId)| NewToken {
        id: *id,
        origin: if index == last {
            Origin::Target
        } else {
            Origin::Draft
        },
        logprobs: Some(logprobs(*id)),
    };
    tokens.iter().enumerate().map(token).collect()
}

fn logprobs(id: TokenId) -> TokenLogprobs {
    TokenLogprobs {
        logprob: -(id as f32),
        ..TokenLogprobs::default()
    }
}

fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(byte_token).collect()
}

fn strings(strings: &[&str]) -> StopStrings {
    StopStrings::new(strings.iter().map(ToString::to_string).collect())
}

fn generation(budget: usize, change: impl FnOnce(&mut StopRules)) -> Arc<Generation> {
    let mut generation = testing::generation(vec![byte_token(b'<'), END_TOKEN], budget);
    change(&mut generation.stop);
    Arc::new(generation)
}

fn stopped_at(token: TokenId) -> Option<FinishReason> {
    Some(FinishReason::Stop(Matched::Token(token)))
}

fn stopped_by(string: &str) -> Option<FinishReason> {
    Some(FinishReason::Stop(Matched::String(string.to_owned())))
}

/// All that a client sees of `tokens`, in rounds of `round`; checks what must hold of any.
fn written(generation: &Arc<Generation>, tokens: &[TokenId], round: usize) -> Delta {
    let mut committed = Committed::new(Arc::clone(generation));
    let mut all = Delta::default();
    for tokens in tokens.chunks(round) {
        let ended = all.finish.is_some();
        let delta = committed.commit(run(tokens));
        assert!(
            !ended || delta == Delta::default(),
            "nothing follows the end"
        );
        all.text += &delta.text;
        all.tokens.extend(delta.tokens);
        all.origins.extend(delta.origins);
        all.logprobs.extend(delta.logprobs);
        all.finish = all.finish.or(delta.finish);
    }
    assert_eq!(committed.generated(), all.tokens.len());
    assert_eq!(&committed.tokens()[generation.prompt.len()..], all.tokens);
    assert_eq!(all.origins.len(), all.tokens.len());
    let expected: Vec<_> = all.tokens.iter().copied().map(logprobs).collect();
    assert_eq!(all.logprobs, expected);
    all
}

#[test]
fn every_stop_at_every_offset_under_every_cap_is_the_same_in_rounds_of_any_size() {
    const STOP: &str = "ab";
    let stop_token = byte_token(b'#');
    for offset in 0..7 {
        for cap in 1..=8 {
            // Each way to stop: its tokens, what it is, and what it leaves in the text.
            for (stop, reason) in [
                (vec![END_TOKEN], stopped_at(END_TOKEN)),
                (vec![stop_token], stopped_at(stop_token)),
                (bytes(STOP), stopped_by(STOP)),
            ] {
                let mut tokens = bytes(&"abcdefg".replace('b', "c")[..offset]);
                let before = tokens.len();
                tokens.extend(&stop);
                let end = tokens.len();
                tokens.extend(bytes("xyz"));
                let generation = generation(cap, |rules| {
                    rules.end_tokens.push(stop_token);
                    rules.strings = strings(&[STOP]);
                });
                let single = written(&generation, &tokens, 1);
                for round in 2..=6 {
                    let mut several = written(&generation, &tokens, round);
                    several.origins.clone_from(&single.origins);
                    assert_eq!(several, single, "{offset} {cap} {round}");
                }
                let len = end.min(cap);
                assert_eq!(single.tokens, tokens[..len]);
                if cap >= end {
                    assert_eq!((single.finish, single.text.len()), (reason, before));
                } else {
                    assert_eq!(single.finish, Some(FinishReason::Length));
                    assert_eq!(single.text.len(), cap, "nothing held back is lost");
                }
            }
        }
    }
}

#[test]
fn only_tokens_that_are_delivered_count_as_accepted() {
    for offset in 0..6 {
        let mut tokens: Vec<TokenId> = bytes("abcdef");
        tokens[offset] = END_TOKEN;
        let mut committed = Committed::new(generation(100, |_| {}));
        let delta = committed.commit(run(&tokens));
        assert_eq!(delta.drafted(), (offset + 1).min(5));
    }
}

#[test]
fn without_end_tokens_the_text_goes_on_past_them() {
    let generation = generation(10, |rules| rules.end_tokens.clear());
    let written = written(&generation, &[END_TOKEN, byte_token(b'a')], 2);
    assert_eq!((written.text.as_str(), written.finish), ("a", None));
}

#[test]
fn stops_are_kept_in_the_text_only_where_the_client_wants_them() {
    for include in [false, true] {
        let rules = |rules: &mut StopRules| {
            rules.end_tokens.push(byte_token(b'#'));
            rules.strings = strings(&["日本"]);
            rules.include = include;
        };
        let text = |tokens: &[TokenId]| written(&generation(100, rules), tokens, 2).text;
        assert_eq!(text(&bytes("a日本b")), if include { "a日本" } else { "a" });
        assert_eq!(text(&bytes("a#b")), if include { "a#" } else { "a" });
        assert_eq!(text(&[byte_token(b'a'), END_TOKEN]), "a", "it has no text");
        let open = &bytes("a日#")[..];
        assert_eq!(
            text(open),
            if include { "a日#" } else { "a日" },
            "held back"
        );
    }
}

#[test]
fn a_string_that_is_complete_on_the_last_token_is_a_stop() {
    let generation = generation(3, |rules| rules.strings = strings(&["bc"]));
    let written = written(&generation, &bytes("abcd"), 4);
    assert_eq!(
        (written.text.as_str(), written.finish),
        ("a", stopped_by("bc"))
    );
}

#[test]
fn the_first_tokens_neither_stop_a_text_nor_begin_a_stop() {
    for min_tokens in 0..8 {
        let generation = generation(100, |rules| {
            rules.strings = strings(&["ab"]);
            rules.min_tokens = min_tokens;
        });
        for round in 1..5 {
            let written = written(&generation, &bytes("abaabab"), round);
            let expected = match min_tokens {
                0 => ("", stopped_by("ab")),
                1..=3 => ("aba", stopped_by("ab")),
                4 | 5 => ("abaab", stopped_by("ab")),
                _ => ("abaabab", None),
            };
            let delivered = written.text;
            // What may begin a stop string is held back while the text goes on.
            assert_eq!(
                (delivered.as_str(), written.finish),
                expected,
                "{min_tokens}"
            );
        }
    }
}

#[test]
fn an_incomplete_character_is_flushed_at_the_end() {
    let half = &bytes("é")[..1];
    let length = written(&generation(1, |_| {}), half, 1);
    assert_eq!(length.text, "\u{fffd}");
    let tokens = [half, &[END_TOKEN]].concat();
    let stop = written(&generation(9, |_| {}), &tokens, 1);
    assert_eq!(stop.text, "\u{fffd}");
}

/// Pieces that split characters, join them, and are none.
const PIECES: [&[u8]; 12] = [
    b"<end>",
    b"#",
    b"a",
    b"b",
    b"ab",
    b"ba\n",
    b"\xc3",
    b"\xa9",
    "é".as_bytes(),
    b"\xe6\x97",
    b"\xa5a",
    b"\x80",
];

/// What must be written: by looking at the whole text after every token.
fn oracle(generation: &Generation, tokens: &[TokenId]) -> (usize, String, Option<FinishReason>) {
    let stop = &generation.stop;
    let mut free = 0;
    for (index, token) in tokens.iter().enumerate() {
        let len = index + 1;
        if stop.end_tokens.contains(token) {
            let kept = if stop.include { len } else { index };
            let reason = stopped_at(*token);
            return (len, decode(generation, &tokens[..kept]), reason);
        }
        let whole = decode(generation, &tokens[..len]);
        let ends = len == generation.max_tokens;
        let text = if ends { &whole[..] } else { certain(&whole) };
        if len <= stop.min_tokens {
            free = text.len();
        } else if let Some((text, found)) = first_stop(stop, text, free) {
            return (len, text, stopped_by(&found));
        }
        if ends {
            return (len, whole, Some(FinishReason::Length));
        }
    }
    (tokens.len(), decode(generation, tokens), None)
}

fn decode(generation: &Generation, tokens: &[TokenId]) -> String {
    generation.model.tokenizer.decode(tokens, true).unwrap()
}

/// `text` without the end that may be an incomplete character.
fn certain(text: &str) -> &str {
    let tail = text.chars().rev().take(3).take_while(|c| *c == '\u{fffd}');
    &text[..text.len() - 3 * tail.count()]
}

fn first_stop(stop: &StopRules, text: &str, free: usize) -> Option<(String, String)> {
    (free..=text.len()).find_map(|end| {
        let found = stop.strings.iter().filter(|string| {
            string.len() <= end - free && text.as_bytes()[..end].ends_with(string.as_bytes())
        });
        let found = found.max_by_key(|string| string.len())?;
        let cut = if stop.include { end } else { end - found.len() };
        Some((text[..cut].to_owned(), found.to_owned()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn rounds_of_any_size_write_what_the_whole_text_says(
        mut tokens in prop::collection::vec(1..PIECES.len() as TokenId, 1..30),
        end in prop::option::of(0usize..30),
        stops in prop::collection::vec("(a|b){2,5}|(a|b|\n|é|日|\u{fffd}){1,4}", 0..3),
        (include, stop_token) in any::<(bool, bool)>(),
        (min_tokens, budget) in (prop_oneof![Just(0usize), 0usize..12], 12usize..CONTEXT),
        rounds in prop::collection::vec(1usize..6, 30),
    ) {
        let model = testing::model_of(&PIECES);
        if let Some(end) = end.filter(|end| *end < tokens.len()) {
            tokens[end] = 0;
        }
        let mut generation = testing::generation(vec![2], budget);
        generation.model = model;
        generation.stop = StopRules {
            end_tokens: if stop_token { vec![0, 1] } else { vec![0] },
            strings: StopStrings::new(stops),
            include,
            min_tokens,
        };
        let generation = Arc::new(generation);
        let (len, text, finish) = oracle(&generation, &tokens);

        let mut committed = Committed::new(Arc::clone(&generation));
        let (mut given, mut at, mut reason) = (String::new(), 0, None);
        for round in rounds {
            if at == tokens.len() || reason.is_some() {
                break;
            }
            let round = &tokens[at..tokens.len().min(at + round)];
            let delta = committed.commit(run(round));
            at += round.len();
            given += &delta.text;
            reason = delta.finish;
        }
        prop_assert_eq!(committed.generated(), len);
        prop_assert_eq!(&reason, &finish);
        if finish.is_some() {
            prop_assert_eq!(given, text);
        } else {
            prop_assert!(text.starts_with(&given));
        }
    }
}
