//! A prompt to token ids, once, with the target's tokenizer: whoever works on the request gets the
//! same ids.

use crate::model::Model;
use crate::template::Message;
use proto::v1::{Chat, Prompt, TokenIds, prompt};
use service::{Class, Error};
use speculation::TokenId;

/// Who may speak in a conversation.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// A prompt's token ids, and the text that they were made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tokenized {
    /// The ids, at least one.
    pub(crate) token_ids: Vec<TokenId>,
    /// The text; empty where the client sent ids.
    pub(crate) text: String,
}

/// Tokenizes `prompt`. Takes time for a long one.
///
/// # Errors
/// [`Class::Invalid`] with the field's path.
pub(crate) fn tokenize(prompt: Option<Prompt>, model: &Model) -> Result<Tokenized, Error> {
    let prompt = prompt.and_then(|prompt| prompt.prompt);
    let tokenized = match prompt {
        None => return Err(Error::invalid("prompt", "is missing")),
        Some(prompt::Prompt::Text(text)) => plain(text, model)?,
        Some(prompt::Prompt::TokenIds(TokenIds { ids })) => {
            check_known("prompt.token_ids.ids", &ids, model)?;
            Tokenized {
                token_ids: ids,
                text: String::new(),
            }
        }
        Some(prompt::Prompt::Chat(chat)) => conversation(chat, model)?,
    };
    if tokenized.token_ids.is_empty() {
        return Err(Error::invalid("prompt", "has no tokens"));
    }
    Ok(tokenized)
}

fn plain(text: String, model: &Model) -> Result<Tokenized, Error> {
    let mut token_ids = encode(&text, model)?;
    // An empty prompt stays one: a lone first token is nothing to continue.
    if let Some(bos) = model.bos_token.filter(|_| !token_ids.is_empty())
        && token_ids[0] != bos
    {
        token_ids.insert(0, bos);
    }
    Ok(Tokenized { token_ids, text })
}

/// The template writes the first token itself where the model wants one.
fn conversation(chat: Chat, model: &Model) -> Result<Tokenized, Error> {
    let messages = chat
        .messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            if ROLES.contains(&message.role.as_str()) {
                Ok(Message {
                    role: message.role,
                    content: message.content,
                })
            } else {
                let field = format!("prompt.chat.messages[{index}].role");
                let message = format!(
                    "must be one of {}, not `{}`",
                    ROLES.join(", "),
                    message.role
                );
                Err(Error::invalid(field, message))
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err(Error::invalid("prompt.chat.messages", "are missing"));
    }
    let text = model
        .template
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|template| template.render(&messages))
        .map_err(|reason| Error::invalid("prompt.chat", reason))?;
    Ok(Tokenized {
        token_ids: encode(&text, model)?,
        text,
    })
}

/// The token ids of `text`. Special tokens in it are recognised; the tokenizer adds none.
///
/// # Errors
/// [`Class::Internal`] where the tokenizer fails.
pub(crate) fn encode(text: &str, model: &Model) -> Result<Vec<TokenId>, Error> {
    let encoding = model
        .tokenizer
        .encode_fast(text, false)
        .map_err(|error| Error::new(Class::Internal, format!("the tokenizer failed: {error}")))?;
    Ok(encoding.get_ids().to_vec())
}

/// The text of `ids`, special tokens included.
///
/// # Errors
/// [`Class::Invalid`] with the field's path.
pub(crate) fn detokenize(ids: Vec<TokenId>, model: &Model) -> Result<String, Error> {
    check_known("token_ids", &ids, model)?;
    model
        .tokenizer
        .decode(&ids, false)
        .map_err(|error| Error::new(Class::Internal, format!("the tokenizer failed: {error}")))
}

/// Checks that the vocabulary has all `ids`, which `field` holds.
fn check_known(field: &str, ids: &[TokenId], model: &Model) -> Result<(), Error> {
    let size = model.tokenizer_size;
    match ids.iter().position(|id| *id >= size) {
        None => Ok(()),
        Some(index) => {
            let field = format!("{field}[{index}]");
            let message = format!(
                "token id {} is not below {size}, the size of the vocabulary",
                ids[index]
            );
            Err(Error::invalid(field, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proto::v1::ChatMessage;

    fn text(text: &str) -> Option<Prompt> {
        some(prompt::Prompt::Text(text.to_owned()))
    }

    fn ids(ids: Vec<TokenId>) -> Option<Prompt> {
        some(prompt::Prompt::TokenIds(TokenIds { ids }))
    }

    fn chat(messages: &[(&str, &str)]) -> Option<Prompt> {
        let messages = messages
            .iter()
            .map(|(role, content)| ChatMessage {
                role: (*role).to_owned(),
                content: (*content).to_owned(),
                ..ChatMessage::default()
            })
            .collect();
        some(prompt::Prompt::Chat(Chat {
            messages,
            ..Chat::default()
        }))
    }

    fn some(prompt: prompt::Prompt) -> Option<Prompt> {
        Some(Prompt {
            prompt: Some(prompt),
        })
    }

    fn refused_field(prompt: Option<Prompt>) -> String {
        match tokenize(prompt, &testing::model())
            .expect_err("a bad prompt")
            .class
        {
            Class::Invalid { field } => field,
            class => panic!("{class:?}"),
        }
    }

    #[test]
    fn a_prompt_without_tokens_is_refused() {
        assert_eq!(refused_field(None), "prompt");
        assert_eq!(refused_field(Some(Prompt { prompt: None })), "prompt");
        assert_eq!(refused_field(text("")), "prompt");
        assert_eq!(refused_field(ids(vec![])), "prompt");
        assert_eq!(refused_field(chat(&[])), "prompt.chat.messages");
    }

    #[test]
    fn an_empty_text_is_refused_also_where_a_first_token_is_added() {
        let mut model = testing::model();
        model.bos_token = Some(testing::END_TOKEN);
        assert!(tokenize(text(""), &model).is_err());
    }

    #[test]
    fn ids_out_of_the_vocabulary_are_refused_with_their_place() {
        let size = testing::model().tokenizer_size;
        assert_eq!(
            refused_field(ids(vec![0, size - 1, size])),
            "prompt.token_ids.ids[2]"
        );
    }

    #[test]
    fn an_unknown_role_is_refused_with_its_place() {
        let messages = [("user", "Hi"), ("wizard", "Hi")];
        assert_eq!(
            refused_field(chat(&messages)),
            "prompt.chat.messages[1].role"
        );
    }

    #[test]
    fn special_tokens_in_a_text_are_recognised() {
        let tokenized = tokenize(text("a<|end|>"), &testing::model()).unwrap();
        assert_eq!(
            tokenized.token_ids,
            [testing::byte_token(b'a'), testing::END_TOKEN]
        );
    }

    #[test]
    fn a_text_gets_the_first_token_that_the_model_wants_but_not_twice() {
        let mut model = testing::model();
        let bos = testing::END_TOKEN;
        model.bos_token = Some(bos);
        let expected = [bos, testing::byte_token(b'a')];
        for prompt in ["a", "<|end|>a"] {
            assert_eq!(tokenize(text(prompt), &model).unwrap().token_ids, expected);
        }
    }

    #[test]
    fn a_conversation_goes_through_the_models_template() {
        let tokenized = tokenize(chat(&[("user", "Hi")]), &testing::model()).unwrap();
        assert_eq!(tokenized.text, "user: Hi<|end|>assistant: ");
        assert!(tokenized.token_ids.contains(&testing::END_TOKEN));
    }

    #[test]
    fn without_a_template_conversations_alone_are_refused() {
        let mut model = testing::model();
        model.template = crate::template::ChatTemplate::new("", String::new(), String::new());
        let error = tokenize(chat(&[("user", "Hi")]), &model).expect_err("no template");
        assert_eq!(
            error.class,
            Class::Invalid {
                field: "prompt.chat".into()
            }
        );
        assert!(tokenize(text("Hi"), &model).is_ok());
    }
}
