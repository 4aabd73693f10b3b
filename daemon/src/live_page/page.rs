//! The document, assembled once, and the policy that restricts a browser to its style and script.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::digest::{SHA256, digest};
use std::sync::LazyLock;

/// The document as it is sent.
pub(crate) struct Page {
    pub(crate) html: String,
    /// `Content-Security-Policy`: style and script by their hashes, requests to this server only.
    pub(crate) policy: String,
    /// Name of this build's page: a page that is open tells by it that the daemon has another one.
    pub(crate) id: String,
}

/// The script, from its parts: names and words, questions, the map, plots, panels, steering.
const SCRIPT: &str = concat!(
    include_str!("base.js"),
    include_str!("ask.js"),
    include_str!("vessels.js"),
    include_str!("zoom.js"),
    include_str!("plots.js"),
    include_str!("panels.js"),
    include_str!("steer.js"),
);

pub(crate) static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let (style, script) = (include_str!("page.css"), SCRIPT);
    let frame = include_str!("page.html");
    let whole = digest(&SHA256, [frame, style, script].concat().as_bytes());
    let id = format!(
        "{} {}",
        env!("CARGO_PKG_VERSION"),
        BASE64.encode(&whole.as_ref()[..6])
    );
    let html = frame
        .replace("/*STYLE*/", style)
        .replace("/*SCRIPT*/", script)
        .replace("/*PAGE*/", &id);
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source(style),
        source(script)
    );
    Page { html, policy, id }
});

fn source(text: &str) -> String {
    format!(
        "'sha256-{}'",
        BASE64.encode(digest(&SHA256, text.as_bytes()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text between the only pair of these tags.
    fn element<'h>(html: &'h str, open: &str, close: &str) -> &'h str {
        let (before, rest) = html.split_once(open).unwrap();
        let (content, after) = rest.split_once(close).unwrap();
        assert!(
            !before.contains(open) && !after.contains(open),
            "{open} once"
        );
        content
    }

    #[test]
    fn the_policy_names_what_is_in_the_document_by_hash() {
        for (open, close, directive) in [
            ("<style>", "</style>", "style-src"),
            ("<script>", "</script>", "script-src"),
        ] {
            let source = source(element(&PAGE.html, open, close));
            assert!(
                PAGE.policy.contains(&format!("{directive} {source};")),
                "{}",
                PAGE.policy
            );
        }
        assert!(!PAGE.policy.contains("unsafe"));
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert_eq!(source(""), empty, "of nothing, by FIPS 180-4");
    }

    #[test]
    fn the_document_is_small_and_loads_nothing() {
        let html = &PAGE.html;
        assert!(html.len() <= 130 << 10, "{} bytes", html.len());
        assert!(html.is_ascii(), "no letter that an encoding could spoil");
        assert!(html.contains(&format!("data-page=\"{}\"", PAGE.id)));
        for outside in [
            "http:", "https:", "src=", "url(", "@import", "<iframe", " style=", " onclick",
        ] {
            assert!(!html.contains(outside), "{outside}");
        }
        let icon = "<link rel=\"icon\" href=\"data:,\">";
        assert!(
            html.matches("<link").eq(["<link"]) && html.contains(icon),
            "no icon is asked for"
        );
    }
}
