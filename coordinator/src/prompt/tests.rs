use super::*;
use crate::testing;
use proto::v1::{Chat, ChatMessage};

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
