//! Whether a draft's tokenizer is the target's. By content: sizes may differ by padding alone, and
//! equal sizes say nothing.

use speculation::TokenId;
use tokenizers::Tokenizer;

/// The first token id below `size`, the target's, or in `draft` that the two read differently, in
/// words for people.
pub(super) fn first_difference(
    target: &Tokenizer,
    draft: &Tokenizer,
    size: TokenId,
) -> Option<String> {
    let draft_size = TokenId::try_from(draft.get_vocab_size(true)).unwrap_or(TokenId::MAX);
    (0..size.max(draft_size)).find_map(|id| {
        let (ours, theirs) = (target.id_to_token(id), draft.id_to_token(id));
        (ours != theirs).then(|| {
            let (ours, theirs) = (named(ours), named(theirs));
            format!("token {id} is {ours} at the target and {theirs} here")
        })
    })
}

fn named(token: Option<String>) -> String {
    token.map_or_else(|| "unknown".to_owned(), |token| format!("{token:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_tokenizer, sentencepiece_tokenizer};
    use tokenizers::AddedToken;

    #[test]
    fn equal_tokenizers_do_not_differ() {
        let tokenizer = byte_level_tokenizer();
        assert_eq!(
            first_difference(&tokenizer, &byte_level_tokenizer(), 257),
            None
        );
    }

    #[test]
    fn the_first_token_that_differs_is_named() {
        let difference = first_difference(&byte_level_tokenizer(), &sentencepiece_tokenizer(), 257);
        assert_eq!(
            difference.unwrap(),
            "token 0 is \"Ā\" at the target and \"<unk>\" here"
        );
    }

    #[test]
    fn a_token_more_or_less_is_a_difference() {
        let mut larger = byte_level_tokenizer();
        larger
            .add_special_tokens([AddedToken::from("<|more|>", true)])
            .unwrap();
        let smaller = byte_level_tokenizer();
        let more = first_difference(&smaller, &larger, 257).unwrap();
        assert_eq!(
            more,
            "token 257 is unknown at the target and \"<|more|>\" here"
        );
        let less = first_difference(&larger, &smaller, 258).unwrap();
        assert_eq!(
            less,
            "token 257 is \"<|more|>\" at the target and unknown here"
        );
    }
}
