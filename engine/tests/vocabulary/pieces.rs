//! SentencePiece vocabularies: pieces join by their scores.

use crate::{MERGES, Metadata, TOKENS, TYPES, changed, encode, list, set, text};
use candle_core::quantized::gguf_file::Value;
use engine::Vocabulary;
use engine::tiny::TinyModel;
use tokenizers::Tokenizer;

/// A SentencePiece vocabulary of some pieces with their scores, in the order of the ids from 259 on,
/// after control tokens and bytes.
fn pieces(pieces: &[(&str, f32)], change: impl FnOnce(&mut Metadata)) -> Vocabulary {
    let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6));
    let control = [("<unk>", 2), ("<s>", 3), ("</s>", 3)];
    let tokens: Vec<(String, f32, i32)> = control
        .map(|(token, kind)| (token.to_owned(), 0.0, kind))
        .into_iter()
        .chain(bytes)
        .chain(pieces.iter().map(|&(piece, score)| {
            let kind = if score < -100.0 { 4 } else { 1 };
            (piece.to_owned(), score, kind)
        }))
        .collect();
    changed(&TinyModel::default(), |metadata| {
        let column = |value: fn(&(String, f32, i32)) -> Value| {
            Value::Array(tokens.iter().map(value).collect())
        };
        set(metadata, "tokenizer.ggml.model", text("llama"));
        set(metadata, TOKENS, column(|token| text(&token.0)));
        set(metadata, SCORES, column(|token| Value::F32(token.1)));
        set(metadata, TYPES, column(|token| Value::I32(token.2)));
        metadata.remove(MERGES);
        metadata.remove("tokenizer.ggml.padding_token_id");
        set(metadata, "tokenizer.ggml.bos_token_id", Value::U32(1));
        set(metadata, "tokenizer.ggml.eos_token_id", Value::U32(2));
        metadata.remove("tokenizer.ggml.add_bos_token");
        change(metadata);
    })
    .unwrap()
}

const SCORES: &str = "tokenizer.ggml.scores";
const PREFIX: &str = "tokenizer.ggml.add_space_prefix";

const HELLO: [(&str, f32); 12] = [
    ("\u{2581}", -9.0),
    ("h", -9.0),
    ("e", -9.0),
    ("l", -9.0),
    ("o", -9.0),
    ("he", -1.0),
    ("ll", -2.0),
    ("llo", -3.0),
    ("hello", -4.0),
    ("\u{2581}hello", -5.0),
    ("el", -1.5),
    ("\u{2581}\u{2581}", -1000.0),
];

#[test]
fn pieces_join_by_the_best_score() {
    let bare = |metadata: &mut Metadata| set(metadata, PREFIX, Value::Bool(false));
    let vocabulary = pieces(&HELLO, bare);
    assert_eq!(
        encode(&vocabulary, "hello hello"),
        ["hello", "\u{2581}hello"]
    );
    assert_eq!(
        encode(&vocabulary, "hell"),
        ["he", "ll"],
        "and not h, el, l"
    );
    assert_eq!(
        encode(&vocabulary, "ello"),
        ["el", "l", "o"],
        "el comes before llo"
    );
    assert_eq!(encode(&vocabulary, "h\u{e9}"), ["h", "<0xC3>", "<0xA9>"]);
    assert_eq!(
        encode(&vocabulary, "   hello"),
        ["\u{2581}\u{2581}", "\u{2581}hello"]
    );
    assert_eq!(encode(&vocabulary, "he</s>"), ["he", "</s>"]);
    assert_eq!(vocabulary.bos_id, Some(1), "unless the file says otherwise");
    let of_scores = |scores: [f32; 2]| {
        let abc = [
            ("a", -9.0),
            ("b", -9.0),
            ("c", -9.0),
            ("ab", scores[0]),
            ("bc", scores[1]),
        ];
        encode(&pieces(&abc, bare), "abc")
    };
    assert_eq!(of_scores([-1.0, -2.0]), ["ab", "c"]);
    assert_eq!(of_scores([-2.0, -1.0]), ["a", "bc"]);
    assert_eq!(of_scores([-1.0, -1.0]), ["ab", "c"], "the first of equals");
    // A longer piece is made in the one way in which scores have it made.
    let abc = [
        ("a", -9.0),
        ("b", -9.0),
        ("c", -9.0),
        ("ab", -2.0),
        ("bc", -1.0),
        ("abc", -3.0),
    ];
    assert_eq!(encode(&pieces(&abc, bare), "abcab"), ["abc", "ab"]);
}

#[test]
fn texts_of_pieces_come_back_with_and_without_a_space_before_them() {
    for prefix in [None, Some(true), Some(false)] {
        let vocabulary = pieces(&HELLO, |metadata| {
            if let Some(prefix) = prefix {
                set(metadata, PREFIX, Value::Bool(prefix));
            }
        });
        let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
        let first = &encode(&vocabulary, "hello")[0];
        let expected = match prefix {
            Some(false) => "hello",
            _ => "\u{2581}hello",
        };
        assert_eq!(first, expected, "{prefix:?}");
        for text in [
            "hello  hello\n",
            " hello",
            "\u{65e5}\u{672c} \u{1f469}",
            "a\0",
        ] {
            let ids = tokenizer.encode(text, false).unwrap();
            let decoded = tokenizer.decode(ids.get_ids(), false).unwrap();
            assert_eq!(decoded, text, "{prefix:?}");
        }
    }
}

#[test]
fn scores_that_are_wrong_are_refused_by_key() {
    let damages: [fn(&mut Metadata); 3] = [
        |m| drop(m.remove(SCORES)),
        |m| list(m, SCORES).truncate(100),
        |m| list(m, SCORES)[4] = Value::F32(f32::NAN),
    ];
    for damage in damages {
        let refusal = changed(&TinyModel::default(), |metadata| {
            let scores = vec![Value::F32(0.0); list(metadata, TOKENS).len()];
            set(metadata, SCORES, Value::Array(scores));
            set(metadata, "tokenizer.ggml.model", text("llama"));
            damage(metadata);
        });
        let shown = refusal.unwrap_err().to_string();
        assert!(shown.contains(SCORES), "{shown}");
    }
}
