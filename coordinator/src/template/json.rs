//! `tojson` as Python's `json.dumps` writes it: nothing in it is escaped for HTML.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, filters};

/// The escapes that are there for HTML alone.
const HTML: [(&str, char); 4] = [
    ("u003c", '<'),
    ("u003e", '>'),
    ("u0026", '&'),
    ("u0027", '\''),
];

/// Of the options of `json.dumps`, `indent` counts; text is never escaped to ASCII.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let json = filters::tojson(
        value,
        indent,
        Kwargs::from_iter(std::iter::empty::<(String, Value)>()),
    )?;
    Ok(unescape(json.as_str().unwrap_or_default()))
}

fn unescape(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, escape)) = rest.split_once('\\') {
        text.push_str(before);
        match HTML.iter().find(|(code, _)| escape.starts_with(code)) {
            Some((code, letter)) => {
                text.push(*letter);
                rest = &escape[code.len()..];
            }
            None => {
                // What follows the backslash is one ASCII letter at least, maybe a backslash.
                text.push('\\');
                text.push_str(&escape[..1]);
                rest = &escape[1..];
            }
        }
    }
    text + rest
}
