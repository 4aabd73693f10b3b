//! Texts quoted for other languages: HTML, the POSIX shell and terminals.

/// Returns a text that is safe in HTML and SVG, also as the value of an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Returns a command line for a POSIX shell.
pub fn shell(words: &[String]) -> String {
    words
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=%@:,./".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns a text without control characters besides line feed and tab, but with these `sequences`:
/// names in images, traces and files may have any, and a terminal would obey.
pub fn plain(text: &str, sequences: &[String]) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let allowed = sequences
            .iter()
            .find(|allowed| !allowed.is_empty() && rest.starts_with(allowed.as_str()));
        let length = allowed.map_or(c.len_utf8(), String::len);
        let is_end_of_line = rest.starts_with("\r\n");
        match allowed.is_some() || is_end_of_line || !c.is_control() || c == '\n' || c == '\t' {
            true => out += &rest[..length],
            // As JSON escapes it: the text may be a document.
            false => out += &format!("\\u{:04x}", u32::from(c)),
        }
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal_and_colours_do() {
        let red = "\u{1b}[31m".to_owned();
        let text = format!("{red}name\u{1b}[2J\u{9b}1m\u{7f}\r \u{7}é\t\r\n");
        let expected = format!("{red}name\\u001b[2J\\u009b1m\\u007f\\u000d \\u0007é\t\r\n");
        assert_eq!(plain(&text, &[red]), expected);
        assert_eq!(plain("", &[]), "");
        let name = serde_json::json!("\u{7f}\u{9b}\u{1b}");
        let document = plain(&name.to_string(), &[]);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&document).unwrap(),
            name
        );
    }
}
