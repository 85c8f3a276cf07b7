//! Errors, and how the library's texts become one line of ours.

/// The library's message is cut here: it may quote the source.
const MAX_MESSAGE_CHARS: usize = 300;

/// A form that no text can be held to: the fault is the request's. One line, of bounded length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(pub String);

/// The tokens of a model that no constraint can be built on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VocabularyError(pub String);

/// What `error` says, in one line: the library adds excerpts, its state and backtraces below.
pub(crate) fn one_line(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no reason is given");
    let mut line = match first.strip_prefix("panic: ") {
        Some(panic) => format!("internal error: {panic}"),
        None => first.to_owned(),
    };
    // So the parser of regular expressions ends its message, after a drawing of the place.
    if let Some((before, _)) = line.split_once("regex parse error:")
        && let Some(reason) = lines.find_map(|line| line.strip_prefix("error: "))
    {
        line = format!("{before}invalid regular expression: {reason}");
    }
    // It quotes the expression, which may be long, before it says what is wrong.
    if let Some((place, after)) = line.split_once(": invalid regex ")
        && let Some((_, reason)) = after.split_once("\" (in regex): ")
    {
        line = format!("{place}: {reason}");
    }
    cut(&line)
}

fn cut(line: &str) -> String {
    let printable = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut cut: String = printable.take(MAX_MESSAGE_CHARS).collect();
    if line.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_message_is_one_line_of_bounded_length_without_a_backtrace() {
        let panic = "panic: index out of range\n<backtrace>\n 0: f\n</backtrace>";
        assert_eq!(one_line(panic), "internal error: index out of range");
        assert_eq!(one_line("\n at 1(2): wrong \n 1 | x"), "at 1(2): wrong");
        assert_eq!(one_line(""), "no reason is given");
        assert_eq!(one_line("ž".repeat(5000)).chars().count(), 301);
    }
}
