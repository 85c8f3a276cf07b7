//! A small vocabulary, and walks over what a constraint allows.

use grammar::{Form, Grammars, Token};
use rand::prelude::*;
use speculation::{Constraint, TokenId};
use std::sync::LazyLock;

/// Pieces of text beside the 256 bytes. The fence is what models put before JSON.
const PIECES: [&[u8]; 32] = [
    b"```json",
    b"```",
    b"{\"",
    b"\":",
    b"\": ",
    b"\",",
    b"\", \"",
    b"\"}",
    b"]}",
    b"}}",
    b", ",
    b" {",
    b"  ",
    b"    ",
    b"\n",
    b"\n  ",
    b"\r\n\t",
    b"\n\n",
    b"name",
    b"ab",
    b"true",
    b"null",
    b"fal",
    b"12",
    b"-1",
    b".5",
    b"e1",
    b"\\n",
    "č".as_bytes(),
    &[0xe6, 0x97],       // of 日
    &[0xf0, 0x9f, 0x99], // of 🙂
    &[0x82, b'"'],       // the last of 🙂, and more
];
pub(crate) const SPECIALS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];

pub(crate) const FENCE: TokenId = 256;
pub(crate) const START: TokenId = 256 + PIECES.len() as TokenId;
pub(crate) const UNUSED: TokenId = START + 1;
pub(crate) const ENDS: [TokenId; 2] = [START + 2, START + 3];
pub(crate) const SIZE: usize = START as usize + 4;
/// A model has more logits than its tokenizer has tokens.
pub(crate) const LOGITS: usize = SIZE + 37;

pub(crate) fn tokens() -> Vec<Token> {
    let special = |which: usize| Token::Special(SPECIALS[which].to_owned());
    let mut tokens: Vec<Token> = (0..=u8::MAX).map(|byte| Token::Text(vec![byte])).collect();
    tokens.extend(PIECES.iter().map(|piece| Token::Text(piece.to_vec())));
    tokens.extend([special(0), Token::Unused, special(1), special(2)]);
    tokens
}

pub(crate) fn grammars() -> Grammars {
    static GRAMMARS: LazyLock<Grammars> =
        LazyLock::new(|| Grammars::new(tokens(), &ENDS).expect("tokens"));
    GRAMMARS.clone()
}

pub(crate) fn compile(form: &Form) -> Box<dyn Constraint> {
    grammars()
        .compile(form)
        .unwrap_or_else(|error| panic!("{form:?}: {error}"))
}

pub(crate) fn refusal(form: &Form) -> String {
    let Err(error) = grammars().compile(form) else {
        panic!("{form:.200?} was taken");
    };
    error.to_string()
}

pub(crate) fn schema(source: &str) -> Form {
    Form::JsonSchema(source.to_owned())
}

/// What is allowed next.
pub(crate) fn allowed(constraint: &mut dyn Constraint) -> Vec<TokenId> {
    let mut logits: Vec<f32> = (0..LOGITS).map(|id| id as f32 * 0.25 - 3.0).collect();
    let before = logits.clone();
    constraint.mask(&mut logits).expect("a mask");
    let kept = |id: &usize| logits[*id] != f32::NEG_INFINITY;
    let ids: Vec<usize> = (0..LOGITS).filter(kept).collect();
    for &id in &ids {
        assert_eq!(logits[id], before[id], "the logit of {id} has changed");
    }
    ids.into_iter().map(|id| id as TokenId).collect()
}

pub(crate) fn is_end(token: TokenId) -> bool {
    ENDS.contains(&token)
}

pub(crate) fn bytes(walk: &[TokenId]) -> Vec<u8> {
    let tokens = tokens();
    let text = walk.iter().filter_map(|&id| match &tokens[id as usize] {
        Token::Text(bytes) => Some(bytes.clone()),
        _ => None,
    });
    text.flatten().collect()
}

/// The token of just these bytes.
pub(crate) fn token(text: &[u8]) -> TokenId {
    let is = |id: &TokenId| bytes(&[*id]) == text;
    let id = (0..SIZE as TokenId).find(is);
    id.unwrap_or_else(|| panic!("no token is {text:?}"))
}

/// The text byte by byte.
pub(crate) fn push_text(constraint: &mut dyn Constraint, text: &str) -> bool {
    text.bytes().all(|byte| constraint.push(byte.into()))
}

pub(crate) fn may_end(constraint: &mut dyn Constraint) -> bool {
    allowed(constraint).iter().any(|&token| is_end(token))
}

/// Whether the text as a whole matches.
pub(crate) fn matches(form: &Form, text: &str) -> bool {
    let mut constraint = compile(form);
    push_text(&mut *constraint, text) && may_end(&mut *constraint)
}

/// A text in tokens, drawn from what is allowed, up to an end token. Where it gets long, what
/// closes is preferred.
pub(crate) fn walk(constraint: &mut dyn Constraint, rng: &mut StdRng) -> Vec<TokenId> {
    const CLOSING: [&[u8]; 5] = [b"\"", b"}", b"]", b"\"}", b"]}"];
    let closing: Vec<TokenId> = (0..SIZE as TokenId)
        .filter(|&id| CLOSING.contains(&&bytes(&[id])[..]))
        .collect();
    let mut walk = Vec::new();
    let patience = rng.random_range(0..60);
    while walk.len() < 600 {
        let mut allowed = allowed(constraint);
        // JSON's numbers have any exponent, and what reads them refuses most.
        if bytes(&walk).last().is_some_and(u8::is_ascii_digit) {
            allowed.retain(|&id| !bytes(&[id]).starts_with(b"e") && id != u32::from(b'E'));
        }
        let mut wanted: Vec<TokenId> = allowed.iter().copied().filter(|&id| is_end(id)).collect();
        if walk.len() > patience && wanted.is_empty() {
            wanted = closing.clone();
            wanted.retain(|id| allowed.contains(id));
        } else if walk.len() <= patience && rng.random_bool(0.8) {
            wanted.clear();
        }
        let from = if wanted.is_empty() { &allowed } else { &wanted };
        let token = *from.choose(rng).expect("a token is allowed");
        assert!(constraint.push(token), "{token} is allowed, and refused");
        walk.push(token);
        if is_end(token) {
            return walk;
        }
    }
    panic!("no end: {}", String::from_utf8_lossy(&bytes(&walk)));
}
