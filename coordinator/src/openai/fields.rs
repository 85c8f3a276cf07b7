//! What the service calls a field, and what the body of a request calls it: an error names what the
//! client wrote.

/// A field's path in `specdec.v1`, and what the body calls it. The longest that fits holds; with
/// nothing on the right, the rest of the path stands alone.
pub(super) type Rename = (&'static str, &'static str);

/// What holds for every request.
const RENAMES: [Rename; 20] = [
    ("prompt.chat.template_arguments", "chat_template_kwargs"),
    ("prompt.chat.messages", "messages"),
    ("prompt.chat.", ""),
    ("prompt.chat", "messages"),
    ("prompt.token_ids.ids", "prompt"),
    ("prompt.text", "prompt"),
    ("sampling.penalty_window", "repeat_last_n"),
    ("sampling.", ""),
    ("stop.strings", "stop"),
    ("stop.token_ids", "stop_token_ids"),
    ("stop.include_stop_string", "include_stop_str_in_output"),
    ("stop.", ""),
    ("speculation.mode", "speculative.enabled"),
    ("speculation.max_draft_tokens", "speculative.n_max"),
    ("speculation.min_draft_tokens", "speculative.n_min"),
    ("speculation.min_confidence", "speculative.p_min"),
    ("speculation", "speculative"),
    ("logprobs.top", "top_logprobs"),
    ("structured", "response_format"),
    ("tenant", "user"),
];

/// What the body calls the field at `path`, where `own` says what this request calls some of them.
pub(super) fn in_body(path: &str, own: &[Rename]) -> String {
    let all = RENAMES.iter().chain(own);
    let fitting = all.filter_map(|(ours, theirs)| Some((ours.len(), theirs, rest(path, ours)?)));
    // Of several as long as each other it is the last.
    let renamed = fitting.max_by_key(|(len, ..)| *len);
    in_function(renamed.map_or_else(
        || path.to_owned(),
        |(_, theirs, rest)| format!("{theirs}{rest}"),
    ))
}

/// What follows `ours` in `path`, where that is a whole part of it.
fn rest<'a>(path: &'a str, ours: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(ours)?;
    let whole = rest.is_empty() || ours.ends_with('.') || rest.starts_with(['.', '[']);
    whole.then_some(rest)
}

/// Bodies keep what is said of a tool, and the name and arguments of a call, one level down.
fn in_function(path: String) -> String {
    let lists = ["tools[", "tool_calls["];
    let Some(list) = lists
        .iter()
        .find_map(|list| Some(path.find(list)? + list.len()))
    else {
        return path;
    };
    match path[list..].split_once("].") {
        Some((index, field)) if field != "id" => {
            format!("{}{index}].function.{field}", &path[..list])
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::in_body;

    #[test]
    fn every_kind_of_path_is_told_as_the_body_has_it() {
        for (ours, theirs) in [
            ("stop.strings[3]", "stop[3]"),
            ("stop.max_tokens", "max_tokens"),
            ("sampling.top_p", "top_p"),
            ("sampling.allowed_token_ids[2]", "allowed_token_ids[2]"),
            ("prompt.chat.messages[1].role", "messages[1].role"),
            ("prompt.chat.tools[0].name", "tools[0].function.name"),
            ("prompt.chat.tool_choice.name", "tool_choice.name"),
            (
                "prompt.chat.messages[1].tool_calls[0].arguments",
                "messages[1].tool_calls[0].function.arguments",
            ),
            ("prompt.chat", "messages"),
            ("prompt.token_ids.ids[7]", "prompt[7]"),
            ("speculation.min_confidence", "speculative.p_min"),
            ("speculation.sources", "speculative.sources"),
            ("bad_words[0]", "bad_words[0]"),
            ("n", "n"),
        ] {
            assert_eq!(in_body(ours, &[]), theirs);
        }
    }

    #[test]
    fn what_a_request_calls_a_field_goes_first() {
        let own = [
            ("stop.max_tokens", "max_completion_tokens"),
            ("prompt", "messages"),
        ];
        assert_eq!(in_body("stop.max_tokens", &own), "max_completion_tokens");
        assert_eq!(in_body("prompt", &own), "messages");
        assert_eq!(
            in_body("prompt.chat.messages[1].role", &own),
            "messages[1].role"
        );
        assert_eq!(
            in_body("logprobs.top", &[("logprobs.top", "logprobs")]),
            "logprobs"
        );
        assert_eq!(in_body("prompts", &own), "prompts");
    }
}
