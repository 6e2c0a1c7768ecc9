//! What one item of Rust source says of itself: its names, signature and bounds, as one line of
//! text.

use std::fmt::Write as _;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Fields, Item, TraitItem, UseTree, Visibility};

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// True for what only tests see.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && text(&a.meta).contains("test"))
}

/// Tokens on one line, with the blanks that rustfmt would leave.
pub(super) fn text(tokens: &impl ToTokens) -> String {
    const RULES: [(&str, &str); 24] = [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("[ ", "["),
        (" ]", "]"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" : ", ": "),
        (" :", ":"),
        (" ;", ";"),
        (" ?", "?"),
        (",)", ")"),
        (",(", ", ("),
        ("->(", "-> ("),
        ("=(", "= ("),
        ("(mut ", "("),
        (", mut ", ", "),
    ];
    let whole = tokens.to_token_stream().to_string();
    RULES.iter().fold(whole, |text, (from, to)| text.replace(from, to))
}

pub(super) fn names(tree: &UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => names(&path.tree, &with(path.ident.to_string()), found),
        UseTree::Name(name) if name.ident == "self" => {
            found.extend(before.last().map(|last| (last.clone(), before.to_vec())));
        }
        UseTree::Name(name) => found.push((name.ident.to_string(), with(name.ident.to_string()))),
        UseTree::Rename(rename) => found.push((rename.rename.to_string(), with(rename.ident.to_string()))),
        UseTree::Glob(_) => found.push(("*".into(), before.to_vec())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, before, found)),
    }
}

pub(super) fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Static(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Type(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

pub(super) fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Const(i) => &i.vis,
        Item::Static(i) => &i.vis,
        Item::Fn(i) => &i.vis,
        Item::Type(i) => &i.vis,
        Item::Struct(i) => &i.vis,
        Item::Enum(i) => &i.vis,
        Item::Trait(i) => &i.vis,
        _ => return None,
    })
}

/// What others see of an item: types and signatures.
pub(super) fn public_tokens(item: &Item) -> Vec<TokenStream> {
    let of_fields = |fields: &Fields, all: bool| -> Vec<TokenStream> {
        fields.iter().filter(|f| all || is_public(&f.vis)).map(|f| f.ty.to_token_stream()).collect()
    };
    match item {
        Item::Const(i) => vec![i.ty.to_token_stream()],
        Item::Static(i) => vec![i.ty.to_token_stream()],
        Item::Fn(i) => vec![i.sig.to_token_stream()],
        Item::Type(i) => vec![i.ty.to_token_stream()],
        Item::Struct(i) => [of_fields(&i.fields, false), vec![i.generics.to_token_stream()]].concat(),
        Item::Enum(i) => i.variants.iter().flat_map(|v| of_fields(&v.fields, true)).collect(),
        Item::Trait(i) => {
            let members = i.items.iter().map(|member| match member {
                TraitItem::Fn(f) => f.sig.to_token_stream(),
                TraitItem::Type(t) => t.bounds.to_token_stream(),
                TraitItem::Const(c) => c.ty.to_token_stream(),
                _ => TokenStream::new(),
            });
            members.chain([i.supertraits.to_token_stream()]).collect()
        }
        _ => Vec::new(),
    }
}

/// The paths in tokens: names with `::` between them.
pub(super) fn paths(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    // Generated text has blanks between tokens, so that words are names, `::`, or other signs.
    let words = tokens.to_string();
    let is_name = |word: &str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let spaced =
        words.replace("::", " :: ").replace(['<', '>', '(', ')', '[', ']', ',', '&', ';', '+', '='], " , ");
    let mut path: Vec<String> = Vec::new();
    let mut joined = false;
    for word in spaced.split_whitespace() {
        match word {
            "::" => joined = true,
            name if is_name(name) && (joined || path.is_empty()) => {
                path.push(name.trim_end_matches(':').to_owned());
                joined = false;
            }
            other => {
                all.extend(Some(std::mem::take(&mut path)).filter(|p| !p.is_empty()));
                joined = false;
                if is_name(other) {
                    path.push(other.trim_end_matches(':').to_owned());
                }
            }
        }
    }
    all.extend(Some(path).filter(|p| !p.is_empty()));
    all
}

/// Parameters with their bounds.
pub(super) fn generics(of: &syn::Generics) -> String {
    let bounds = of.where_clause.as_ref().map_or(String::new(), |w| format!(" {}", text(w)));
    format!("{}{bounds}", text(of))
}

pub(super) fn exhaustive(attributes: &[Attribute]) -> &'static str {
    if attributes.iter().any(|a| a.path().is_ident("non_exhaustive")) { " (non-exhaustive)" } else { "" }
}

/// Generics, parameters, result and bounds.
pub(super) fn signature(sig: &syn::Signature) -> String {
    let whole = text(&syn::Signature { ident: syn::Ident::new("f", sig.ident.span()), ..sig.clone() });
    let (before, after) = whole.split_once("fn f").unwrap_or(("", &whole));
    let after = if let Some(rest) = after.strip_prefix(' ') { rest } else { after };
    let mut line = after.to_owned();
    if !before.trim().is_empty() {
        let _ = write!(line, " [{}]", before.trim());
    }
    line
}

pub(super) fn derived(attributes: &[Attribute]) -> String {
    let lists =
        attributes.iter().filter(|a| a.path().is_ident("derive")).filter_map(|a| a.meta.require_list().ok());
    let mut all: Vec<String> =
        lists.flat_map(|l| text(&l.tokens).split(", ").map(String::from).collect::<Vec<_>>()).collect();
    all.sort();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(" + ")) }
}

pub(super) fn fields(fields: &Fields, path: &str, only_public: bool, add: &mut impl FnMut(String)) {
    for (at, field) in fields.iter().enumerate() {
        if only_public && !is_public(&field.vis) {
            continue;
        }
        let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
        add(format!("field {path}.{name}: {}", text(&field.ty)));
    }
}
