//! Types of `src/` with their doc comments, parsed from the sources.

use std::collections::BTreeMap;

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, LitStr, Meta, PathArguments, Token, Type, Visibility};

/// A struct that is read from a table, or an enum with one word for each variant.
pub(super) enum Known {
    Section(Vec<Field>),
    /// A section, or a list of sections, written under one key.
    OneOrMore(String),
    Words(Vec<Word>),
}

pub(super) struct Field {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) kind: Kind,
    /// `units::duration` and the like.
    pub(super) with: Option<String>,
}

/// The type of a field without what wraps it.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) is_list: bool,
    pub(super) is_map: bool,
}

pub(super) struct Word {
    pub(super) text: String,
    pub(super) doc: String,
}

/// By name, of all files below these folders and files of `src/`.
pub(super) fn types_of(places: &[&str]) -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    for item in places.iter().flat_map(|place| items_of(place)) {
        match item {
            Item::Struct(item) => drop(section(&item).map(|found| known.insert(item.ident.to_string(), found))),
            Item::Enum(item) => {
                let word = |variant: &syn::Variant| Word {
                    text: variant_text(&item.attrs, variant),
                    doc: doc(&variant.attrs),
                };
                known.insert(item.ident.to_string(), Known::Words(item.variants.iter().map(word).collect()));
            }
            _ => {}
        }
    }
    known
}

/// Every `labels! { … }` of a file.
pub(super) fn labels_of(place: &str) -> Vec<Vec<Word>> {
    let mut found = vec![];
    for item in items_of(place) {
        if let Item::Macro(item) = item
            && item.mac.path.is_ident("labels")
        {
            found.push(item.mac.parse_body::<Labels>().unwrap().0);
        }
    }
    found
}

fn items_of(place: &str) -> Vec<Item> {
    let path = super::root().join("src").join(place);
    let mut paths = vec![];
    if path.is_dir() {
        crate::house::architecture::rust_files(&path, &mut paths);
    } else {
        paths.push(path);
    }
    let read = |path| syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items;
    paths.into_iter().flat_map(read).collect()
}

/// A type all of whose fields are private, the first of them a section, stands for that section; any other is a value.
fn section(item: &syn::ItemStruct) -> Option<Known> {
    let Fields::Named(fields) = &item.fields else { return None };
    let first = kind(&fields.named.first()?.ty)?;
    if fields.named.iter().all(|field| matches!(field.vis, Visibility::Inherited)) {
        return Some(Known::OneOrMore(first.name));
    }
    serde(&item.attrs).contains_key("deny_unknown_fields").then_some(())?;
    let fields = fields.named.iter().filter(|field| !serde(&field.attrs).contains_key("skip")).map(|field| Field {
        name: field.ident.as_ref().unwrap().to_string(),
        doc: doc(&field.attrs),
        kind: kind(&field.ty).unwrap(),
        with: serde(&field.attrs).remove("with"),
    });
    Some(Known::Section(fields.collect()))
}

fn kind(ty: &Type) -> Option<Kind> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    let name = segment.ident.to_string();
    let inner = match &segment.arguments {
        PathArguments::AngleBracketed(inside) => inside.args.last().and_then(|argument| match argument {
            GenericArgument::Type(ty) => kind(ty),
            _ => None,
        }),
        _ => None,
    };
    match (name.as_str(), inner) {
        ("Option", Some(inner)) => Some(inner),
        ("Vec", Some(inner)) => Some(Kind { is_list: true, ..inner }),
        ("BTreeMap", Some(inner)) => Some(Kind { is_map: true, ..inner }),
        _ => Some(Kind { name, is_list: false, is_map: false }),
    }
}

/// What `#[serde(…)]` says.
fn serde(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let metas = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap();
        for meta in metas {
            let value = match &meta {
                Meta::NameValue(pair) => literal(&pair.value),
                _ => String::new(),
            };
            said.insert(meta.path().get_ident().unwrap().to_string(), value);
        }
    }
    said
}

fn literal(value: &Expr) -> String {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => text.value(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn variant_text(of_enum: &[Attribute], variant: &syn::Variant) -> String {
    let name = variant.ident.to_string();
    let renamed = serde(&variant.attrs).remove("rename");
    renamed.unwrap_or_else(|| match serde(of_enum).get("rename_all").map(String::as_str) {
        Some("kebab-case") => {
            let dashed = |(at, c): (usize, char)| if at > 0 && c.is_uppercase() { format!("-{c}") } else { c.into() };
            name.char_indices().map(dashed).collect::<String>().to_lowercase()
        }
        _ => name.to_lowercase(),
    })
}

fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => Some(literal(&pair.value).trim().to_owned()),
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// The body of one `labels!`: the name of the enum, then `Variant = "text"`, each with its doc comment.
struct Labels(Vec<Word>);

impl Parse for Labels {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Attribute::parse_outer(input)?;
        input.parse::<syn::Ident>()?;
        let body;
        syn::braced!(body in input);
        let mut words = vec![];
        while !body.is_empty() {
            let attributes = Attribute::parse_outer(&body)?;
            body.parse::<syn::Ident>()?;
            body.parse::<Token![=]>()?;
            words.push(Word { text: body.parse::<LitStr>()?.value(), doc: doc(&attributes) });
            if !body.is_empty() {
                body.parse::<Token![,]>()?;
            }
        }
        Ok(Self(words))
    }
}
