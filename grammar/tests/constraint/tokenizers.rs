//! Vocabularies, and those read from a tokenizer's document.

use crate::walks::tokens;
use grammar::{Form, Grammars, Token};
use serde_json::{Map, Value, json};

/// Byte-level tokens in the order of the bytes, then a word, then two added tokens.
fn document() -> Value {
    let mut others = '\u{100}'..;
    let mut vocab: Map<String, Value> = (0..=u8::MAX)
        .map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let c = if printable {
                char::from(byte)
            } else {
                others.next().unwrap_or_default()
            };
            (c.to_string(), byte.into())
        })
        .collect();
    vocab.insert("Ġa".to_owned(), 256.into());
    json!({
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab},
        "added_tokens": [
            {"id": 257, "content": "<|im_start|>", "special": true},
            {"id": 258, "content": "<|im_end|>", "special": true},
        ],
    })
}

#[test]
fn a_tokenizers_document_makes_grammars() {
    let document = document().to_string();
    let grammars = Grammars::from_tokenizer_json(document.as_bytes(), 259, &[258]).unwrap();
    let form = Form::Lark("start: <|im_start|> \" a\\n\" \"č\"".to_owned());
    let mut constraint = grammars.compile(&form).unwrap();
    let letter = "č".as_bytes();
    for token in [257, 256, 10, letter[0].into(), letter[1].into(), 258] {
        let mut logits = vec![0.0_f32; 259];
        constraint.mask(&mut logits).unwrap();
        assert_eq!(logits[token as usize], 0.0, "{token}");
        assert!(constraint.push(token), "{token}");
    }
}

#[test]
fn a_vocabulary_that_no_text_could_end_in_is_refused() {
    let refusal = |ends: &[u32]| Grammars::new(tokens(), ends).unwrap_err().to_string();
    assert!(refusal(&[]).starts_with("no token ends a text"));
    assert_eq!(
        refusal(&[5, 9999]),
        "end token 9999 is none of the 292 tokens"
    );
    let document = document().to_string();
    let error = Grammars::from_tokenizer_json(document.as_bytes(), 258, &[257]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tokenizer.json: added_tokens: 258 is not an id under 258"
    );
}

#[test]
fn tokens_that_are_alike_or_very_long_are_held() {
    let mut tokens = tokens();
    let size = tokens.len() as u32;
    tokens.extend([Token::Text(b"a".to_vec()), Token::Text(b"a".to_vec())]);
    tokens.extend([
        Token::Text(vec![b'a'; 900]),
        Token::Text(vec![b'a'; 100_000]),
    ]);
    tokens.push(Token::Text(Vec::new()));
    let grammars = Grammars::new(tokens, &[size - 1, size - 1]).unwrap();
    let mut constraint = grammars.compile(&Form::Regex("a+".to_owned())).unwrap();
    let mut logits = vec![0.0_f32; size as usize + 5];
    constraint.mask(&mut logits).unwrap();
    let allowed: Vec<u32> = (0..size + 5)
        .filter(|&id| logits[id as usize] == 0.0)
        .collect();
    assert_eq!(allowed, [u32::from(b'a'), size, size + 1, size + 2]);
    assert!(constraint.push(size + 2) && constraint.push(size + 1) && constraint.push(size - 1));
}

#[test]
fn text_that_is_no_utf8_is_no_special_token() {
    let mut tokens = tokens();
    tokens.push(Token::Text(b"\xff<|tool|>".to_vec()));
    let grammars = Grammars::new(tokens, &[0]).unwrap();
    let form = Form::Lark("start: <|tool|>".to_owned());
    let error = grammars.compile(&form).unwrap_err().to_string();
    assert_eq!(error, "lark: at 1(8): unknown special token: \"<|tool|>\"");
}
