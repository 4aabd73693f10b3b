//! The text of `ftld inspect`, from its answer as JSON.

use super::cache::cache_text;
use crate::size::show_size;
use serde_json::Value;

pub(super) fn text(value: &Value, flash: &str) -> String {
    let size = |key: &str| value[key].as_u64().map_or("-".into(), show_size);
    let word = |key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let g = &value["geometry"];
    let params: Vec<_> = value["params"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut text = format!(
        "{}: format {}, uuid {}\n  scheme    {}\n  params    {}\n  device    {} on {} of raw {} flash{}\n  \
         geometry  {} blocks of {} pages of {}+{} bytes\n  flash     {}  shutdown  {}\n",
        word("image"),
        value["version"],
        word("uuid"),
        word("scheme"),
        params.join(" "),
        size("size_bytes"),
        size("raw_bytes"),
        word("profile"),
        chips_text(value),
        g["blocks"],
        g["pages_per_block"],
        g["page_bytes"],
        g["oob_bytes"],
        flash.replace("\n  ", "\n            "),
        if value["clean"] == true {
            "clean"
        } else {
            "unclean, or in use"
        },
    );
    if let Some(cache) = cache_text(&value["write_cache"]) {
        text += &format!("  cache     {cache}\n");
    }
    let shown = [
        ("page", page_text as fn(&Value) -> String),
        ("lpn", lpn_text),
    ];
    for (key, show) in shown.into_iter().filter(|(key, _)| !value[key].is_null()) {
        text += &show(&value[key]);
    }
    for block in value["blocks"].as_array().into_iter().flatten() {
        let bad = block["bad"]
            .as_str()
            .map_or(String::new(), |bad| format!("  bad ({bad})"));
        let (number, erases) = (block["block"].to_string(), block["erases"].to_string());
        text += &format!(
            "block {number:>8}  erases {erases:>6}  programmed {:>4}{bad}\n",
            block["programmed_pages"].to_string()
        );
    }
    text
}

/// Returns how the bytes lie on several chips; empty for one.
fn chips_text(value: &Value) -> String {
    let stripe = value["stripe_bytes"].as_u64();
    stripe.map_or(String::new(), |bytes| {
        format!(
            ", {} chips in stripes of {}",
            value["shards"],
            show_size(bytes)
        )
    })
}

/// Returns a page as text.
fn page_text(page: &Value) -> String {
    let (place, state) = (&page["place"], page["state"].as_str().unwrap_or("-"));
    let mut text = format!("page {}:{}: {state}\n", place["block"], place["page"]);
    if state != "erased" {
        text += &format!("  record    {}\n", record_text(&page["record"]));
    }
    text + &data_text(page)
}

/// Returns a logical page and its versions as text.
fn lpn_text(page: &Value) -> String {
    let state = match (page["error"].as_str(), page["mapped"] == true) {
        (Some(error), _) => error,
        (None, true) => "mapped",
        (None, false) => "not mapped",
    };
    let mut text = format!("logical page {}: {state}\n{}", page["lpn"], data_text(page));
    for copy in page["copies"].as_array().into_iter().flatten() {
        let place = format!("{}:{}", copy["block"], copy["page"]);
        text += &format!("  {place:<9} {}\n", record_text(&copy["record"]));
    }
    text
}

/// Returns a record as text; without one, the reason.
fn record_text(record: &Value) -> String {
    match record["role"].as_str() {
        Some(role) => format!(
            "{role} {}, version {}, sequence number {}, epoch {}",
            record["lpn"], record["ver"], record["pseq"], record["epoch"]
        ),
        None => "no readable record".into(),
    }
}

fn data_text(page: &Value) -> String {
    let head = page["data_head"].as_str();
    head.map_or(String::new(), |head| format!("  data      {head}...\n"))
}
