use crate::prompt::tokenize;
use crate::testing::model_with;
use proto::v1::{Chat, ChatMessage, Prompt, Tool, ToolCall, ToolChoice, prompt, tool_choice};
use serde::Deserialize;
use serde_json::value::RawValue;
use service::{Class, Error};

/// A conversation as Hugging Face's tokenizers take it, and what they make of it.
#[derive(Deserialize)]
struct Case<'a> {
    messages: Vec<Turn<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Typed<Definition<'a>>>,
    #[serde(borrow)]
    template_arguments: Option<&'a RawValue>,
    #[serde(default)]
    continue_final_message: bool,
    prompt: String,
}

#[derive(Deserialize)]
struct Turn<'a> {
    role: String,
    content: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tool_call_id: String,
    #[serde(borrow, default)]
    tool_calls: Vec<Typed<Called<'a>>>,
}

#[derive(Deserialize)]
struct Typed<T> {
    #[serde(default)]
    id: String,
    function: T,
}

#[derive(Deserialize)]
struct Definition<'a> {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
}

#[derive(Deserialize)]
struct Called<'a> {
    name: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl Case<'_> {
    fn chat(&self) -> Chat {
        Chat {
            messages: self.messages.iter().map(Turn::message).collect(),
            tools: self.tools.iter().map(Typed::tool).collect(),
            template_arguments: self
                .template_arguments
                .map_or_else(String::new, |json| json.get().to_owned()),
            continue_final_message: self.continue_final_message,
            tool_choice: None,
        }
    }
}

impl Turn<'_> {
    fn message(&self) -> ChatMessage {
        ChatMessage {
            role: self.role.clone(),
            content: self.content.clone(),
            name: self.name.clone(),
            tool_calls: self.tool_calls.iter().map(Typed::call).collect(),
            tool_call_id: self.tool_call_id.clone(),
        }
    }
}

impl Typed<Called<'_>> {
    fn call(&self) -> ToolCall {
        ToolCall {
            id: self.id.clone(),
            name: self.function.name.clone(),
            arguments: self.function.arguments.get().to_owned(),
        }
    }
}

impl Typed<Definition<'_>> {
    fn tool(&self) -> Tool {
        Tool {
            name: self.function.name.clone(),
            description: self.function.description.clone(),
            parameters: self.function.parameters.get().to_owned(),
            strict: false,
        }
    }
}

fn rendered(chat: Chat, template: &str) -> Result<String, Error> {
    let prompt = Prompt {
        prompt: Some(prompt::Prompt::Chat(chat)),
    };
    let special = ["<|im_start|>", "<|im_end|>"];
    Ok(tokenize(Some(prompt), &model_with(template, &special))?.text)
}

fn refused_field(chat: Chat, template: &str) -> String {
    match rendered(chat, template).expect_err("refused").class {
        Class::Invalid { field } => field,
        class => panic!("{class:?}"),
    }
}

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage {
        role: role.into(),
        content: content.into(),
        ..ChatMessage::default()
    }
}

fn hi() -> Chat {
    Chat {
        messages: vec![message("user", "Hi")],
        ..Chat::default()
    }
}

fn tool(name: &str) -> Tool {
    Tool {
        name: name.into(),
        ..Tool::default()
    }
}

const QWEN: &str = include_str!("../../../tests/data/qwen2.5-coder.jinja");
const SMOLLM: &str = include_str!("../../../tests/data/smollm2.jinja");

#[test]
fn real_templates_render_as_elsewhere() {
    let data = [
        (
            QWEN,
            include_str!("../../../tests/data/qwen2.5-coder.chats.json"),
        ),
        (
            SMOLLM,
            include_str!("../../../tests/data/smollm2.chats.json"),
        ),
        (
            QWEN,
            include_str!("../../../tests/data/qwen2.5-coder.tools.json"),
        ),
    ];
    for (template, cases) in data {
        let cases: Vec<Case<'_>> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() >= 4);
        for case in cases {
            assert_eq!(rendered(case.chat(), template).unwrap(), case.prompt);
        }
    }
}

#[test]
fn arguments_of_a_template_reach_it_and_set_nothing_of_ours() {
    let with = |arguments: &str| Chat {
        template_arguments: arguments.into(),
        ..hi()
    };
    let template = "{{ messages[0].content }}{% if not thinking %} {{ list[1].a }}{% endif %}";
    let arguments = r#"{"thinking": false, "list": [1, {"a": "x"}]}"#;
    assert_eq!(rendered(with(arguments), template).unwrap(), "Hi x");
    for wrong in [
        r#"{"messages": []}"#,
        r#"{"tools": []}"#,
        r#"{"eos_token": ""}"#,
        "[1]",
        "{",
        &"[".repeat(100_000),
    ] {
        let field = refused_field(with(wrong), template);
        assert_eq!(field, "prompt.chat.template_arguments");
    }
}

#[test]
fn tools_are_refused_where_they_make_no_sense() {
    let with = |tools: Vec<Tool>| Chat { tools, ..hi() };
    let field = |chat| refused_field(chat, QWEN);
    for (name, index) in [("", 0), ("a b", 0), ("é", 0), (&*"a".repeat(65), 0)] {
        let expected = format!("prompt.chat.tools[{index}].name");
        assert_eq!(field(with(vec![tool(name)])), expected);
    }
    assert_eq!(
        field(with(vec![tool("a"), tool("b"), tool("a")])),
        "prompt.chat.tools[2].name"
    );
    let many = (0..129).map(|number| tool(&format!("f{number}")));
    assert_eq!(field(with(many.collect())), "prompt.chat.tools");
    for parameters in ["[]", "{", "1", " "] {
        let tool = Tool {
            parameters: parameters.into(),
            ..tool("a")
        };
        assert_eq!(field(with(vec![tool])), "prompt.chat.tools[0].parameters");
    }
    assert_eq!(
        refused_field(with(vec![tool("a")]), SMOLLM),
        "prompt.chat.tools",
        "a template that knows of none"
    );
    let chosen = Chat {
        tool_choice: Some(ToolChoice {
            choice: Some(tool_choice::Choice::Name("b".into())),
        }),
        ..with(vec![tool("a")])
    };
    assert_eq!(field(chosen), "prompt.chat.tool_choice.name");
}

#[test]
fn tools_that_must_not_be_called_are_not_shown() {
    let chat = Chat {
        tools: vec![tool("a")],
        tool_choice: Some(ToolChoice {
            choice: Some(tool_choice::Choice::Mode(proto::v1::ToolMode::None.into())),
        }),
        ..hi()
    };
    assert_eq!(
        rendered(chat.clone(), QWEN).unwrap(),
        rendered(hi(), QWEN).unwrap()
    );
    assert!(rendered(chat, SMOLLM).is_ok());
}

#[test]
fn only_the_assistants_own_words_can_go_on() {
    let with = |messages: Vec<ChatMessage>| Chat {
        messages,
        continue_final_message: true,
        ..Chat::default()
    };
    let mut called = message("assistant", "a");
    called.tool_calls.push(ToolCall::default());
    for last in [message("user", "a"), message("assistant", " "), called] {
        let chat = with(vec![message("user", "Hi"), last]);
        assert_eq!(
            refused_field(chat, QWEN),
            "prompt.chat.continue_final_message"
        );
    }
    let chat = with(vec![
        message("assistant", ">"),
        message("assistant", "> a "),
    ]);
    assert!(rendered(chat, QWEN).unwrap().ends_with("assistant\n> a "));
}

#[test]
fn calls_of_others_than_the_assistant_are_refused() {
    let mut called = message("user", "a");
    called.tool_calls.push(ToolCall::default());
    let chat = Chat {
        messages: vec![called],
        ..Chat::default()
    };
    assert_eq!(
        refused_field(chat, QWEN),
        "prompt.chat.messages[0].tool_calls"
    );
}
