//! Every key of the configuration: type, default, rule, whether a running process takes it over, doc comment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bloomguard::config::{
    self, Config, Freshness, IncrementalConfig, KeyspaceConfig, RedisConfig, Scope, SourceConfig, TokenConfig,
};
use serde_json::{Value, json};

use super::cell;
use super::sources::{Field, Known, Word, types_of};

/// The name of the one keyspace of the examined configuration.
const NAME: &str = "NAME";

struct Types {
    known: BTreeMap<String, Known>,
    /// Every section, with the defaults of all of its keys.
    defaults: Config,
    /// A configuration in which every key may be changed.
    base: Config,
}

pub(super) fn page() -> String {
    let types = Types {
        known: types_of(&["config", "key/form.rs"]),
        defaults: with_every_section(KeyspaceConfig::default(), TokenConfig::default()),
        base: changeable(),
    };
    let mut page = String::new();
    types.section("Config", "", &mut page);
    page
}

/// The defaults, with a section of each kind.
fn with_every_section(keyspace: KeyspaceConfig, tokens: TokenConfig) -> Config {
    let source = SourceConfig { incremental: Some(IncrementalConfig::default()), ..SourceConfig::default() };
    let keyspace = KeyspaceConfig { source: source.into(), ..keyspace };
    let mut config = Config {
        redis: Some(RedisConfig::default()),
        keyspaces: BTreeMap::from([(NAME.into(), keyspace)]),
        ..Config::default()
    };
    config.server.tokens = vec![tokens];
    config
}

/// A listener that demands no token demands none before a restart, and a schedule that is too seldom is not taken over:
/// neither says anything of the key that is changed.
fn changeable() -> Config {
    let keyspace = KeyspaceConfig { freshness: Freshness::Announced, ..KeyspaceConfig::default() };
    let tokens = TokenConfig { file: "tokens".into(), scopes: vec![Scope::Read], ..TokenConfig::default() };
    let mut config = with_every_section(keyspace, tokens);
    config.server.token_file = Some("data".into());
    config.server.admin_token_file = Some("admin".into());
    // Secrets are redacted in a document: as they come back they stay the same.
    serde_json::from_value(config.document()).unwrap()
}

impl Types {
    /// The table of one section, then its sections.
    fn section(&self, type_name: &str, path: &str, page: &mut String) {
        let fields = self.fields(type_name).unwrap();
        let (sections, keys): (Vec<&Field>, Vec<&Field>) =
            fields.iter().partition(|field| self.fields(&field.kind.name).is_some());
        if !keys.is_empty() {
            writeln!(page, "## `{}`\n", header(path)).unwrap();
            page.push_str("| key | type | default | rule | changes | meaning |\n|---|---|---|---|---|---|\n");
            keys.iter().for_each(|field| self.row(field, path, page));
            page.push('\n');
        }
        for field in sections {
            let dot = if path.is_empty() { "" } else { "." };
            let index = if field.kind.is_list { "[0]" } else { "" };
            let name = if field.kind.is_map { format!(".{NAME}") } else { String::new() };
            self.section(&field.kind.name, &format!("{path}{dot}{}{index}{name}", field.name), page);
        }
    }

    fn fields(&self, type_name: &str) -> Option<&[Field]> {
        match self.known.get(type_name)? {
            Known::Section(fields) => Some(fields),
            Known::OneOrMore(inner) => self.fields(inner),
            Known::Words(_) => None,
        }
    }

    fn words(&self, field: &Field) -> Option<&[Word]> {
        match self.known.get(&field.kind.name) {
            Some(Known::Words(words)) => Some(words),
            _ => None,
        }
    }

    fn row(&self, field: &Field, path: &str, page: &mut String) {
        let key = format!("{path}.{}", field.name);
        let default = at(&mut self.defaults.document(), &key).clone();
        let (default, changes) = (shown(field, &default), if self.is_live(field, &key) { "live" } else { "restart" });
        let mut meaning = field.doc.clone();
        if !default.is_empty() {
            meaning = without_default(&meaning);
        }
        for Word { text, doc } in self.words(field).into_iter().flatten() {
            write!(meaning, " `{text}`: {}", lowered(doc)).unwrap();
        }
        let (name, kind, rule, meaning) = (&field.name, self.type_of(field), rule(field, &key), cell(&meaning));
        writeln!(page, "| `{name}` | {kind} | {default} | {rule} | {changes} | {meaning} |").unwrap();
    }

    fn type_of(&self, field: &Field) -> String {
        let kind = match (field.with.as_deref(), field.kind.name.as_str()) {
            (Some("units::duration"), _) => "duration",
            (Some("units::size"), _) => "size",
            (_, "bool") => "true or false",
            (_, "f64") => "number",
            (_, "PathBuf") => "path",
            (_, "SecretUrl") => "URL",
            (_, "Headers") => "table",
            (_, "String" | "AbsentHeader") => "text",
            (_, number) if number.starts_with(['u', 'i']) => "whole number",
            (_, other) => match self.words(field) {
                Some(_) => "word",
                None => panic!("{}: no name for the type {other}", field.name),
            },
        };
        if field.kind.is_list { format!("list of {kind}") } else { kind.to_owned() }
    }

    /// Whether a process takes over a change of this key: tried on another value.
    fn is_live(&self, field: &Field, key: &str) -> bool {
        let mut document = self.base.document();
        let slot = at(&mut document, key);
        *slot = self.another(field, slot);
        let changed: Config = serde_json::from_value(document).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(!self.base.differences(&changed).is_empty(), "{key}: no difference was made");
        self.base.with_live_settings_of(&changed).differences(&changed).is_empty()
    }

    fn another(&self, field: &Field, value: &Value) -> Value {
        let one = match (field.with.as_deref(), field.kind.name.as_str(), value) {
            (Some("units::duration"), ..) => json!("7s"),
            (_, "Headers", _) => json!({"x-other": "1"}),
            (_, "AbsentHeader", _) => json!("x-other: 1"),
            (_, _, Value::Bool(value)) => json!(!value),
            (_, "bool", _) => json!(true),
            (_, "f64", _) => json!(0.25),
            _ => match self.words(field) {
                Some(words) => json!(
                    words.iter().map(|word| &word.text).find(|text| *value != json!([text]) && *value != json!(text))
                ),
                None if field.kind.name.starts_with('u') => json!(7),
                None => json!("other"),
            },
        };
        if field.kind.is_list { json!([one]) } else { one }
    }
}

/// `[[server.tokens]]` of `server.tokens[0]`.
fn header(path: &str) -> String {
    path.strip_suffix("[0]").map_or_else(|| format!("[{path}]"), |list| format!("[[{list}]]"))
}

fn at<'v>(document: &'v mut Value, key: &str) -> &'v mut Value {
    key.split('.').fold(document, |value, step| match step.strip_suffix("[0]") {
        Some(list) => &mut value[list][0],
        None => &mut value[step],
    })
}

/// What `check-config` demands of values at both ends of the type, of the example with nothing but this key changed.
fn rule(field: &Field, key: &str) -> String {
    let probes: &[&str] = match (field.with.as_deref(), field.kind.name.as_str()) {
        (Some("units::duration"), _) => &["\"0s\"", "\"11years\""],
        (Some("units::size"), _) => &["0", "9223372036854775807"],
        (_, "f64") => &["-1.0", "1e300"],
        (_, "u8") => &["0", "255"],
        (_, "u32") => &["0", "4294967295"],
        (_, "u64" | "usize") => &["0", "9223372036854775807"],
        _ => return String::new(),
    };
    let key = key.replace(NAME, "users");
    let found: BTreeSet<String> = probes.iter().flat_map(|value| demands(&key, value)).collect();
    cell(&found.into_iter().collect::<Vec<_>>().join("; "))
}

fn demands(key: &str, value: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let change = dir.path().join("change.toml");
    std::fs::write(&change, format!("{key} = {value}")).unwrap();
    let example = super::root().join("config/bloomguard.example.toml");
    let Err(errors) = config::load(&[example, change], std::iter::empty()) else { return vec![] };
    let of_key = errors.errors().iter().filter(|error| error.path == key);
    let demanded = |rule: &str| {
        let rule = rule.strip_prefix("must be ").or(rule.strip_prefix("must ")).unwrap_or(rule);
        rule.split(", is ").next().unwrap().split(", are ").next().unwrap().to_owned()
    };
    of_key.map(|error| demanded(&error.rule)).collect()
}

/// A default as it would be written; nothing where a key is left out by default.
fn shown(field: &Field, value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) if text.is_empty() || text == "<redacted>" => return String::new(),
        Value::Array(items) if items.is_empty() => return "`[]`".into(),
        Value::Object(items) if items.is_empty() => return String::new(),
        Value::Number(bytes) if field.with.as_deref() == Some("units::size") => match bytes.as_u64().unwrap() {
            mebibytes if mebibytes > 0 && mebibytes.is_multiple_of(1 << 20) => format!("\"{}MiB\"", mebibytes >> 20),
            other => other.to_string(),
        },
        other => other.to_string(),
    };
    format!("`{text}`")
}

/// Without a last sentence that only repeats the default.
fn without_default(doc: &str) -> String {
    let trimmed = doc.strip_suffix('.').unwrap_or(doc);
    match trimmed.rsplit_once("Default ") {
        Some((before, default)) if !default.contains(": ") && !default.contains("where") => {
            before.trim_end().to_owned()
        }
        _ => doc.to_owned(),
    }
}

/// `Split block: …` after a colon.
fn lowered(doc: &str) -> String {
    let mut chars = doc.chars();
    let first = chars.next().map(|c| c.to_lowercase().to_string()).unwrap_or_default();
    let rest = chars.as_str();
    if rest.starts_with(char::is_uppercase) { doc.to_owned() } else { first + rest }
}
