//! The stability of what a program describes, and the least that `-xamin` asks for.

use check::program::Clause;
use diagnostics::{Diagnostic, Sink, Tag};
use probes::{Attributes, Catalog, Pattern, ProviderStability, is_glob};
use providers::Registry;

/// The stability attributes of a description.
pub(crate) fn description_attributes(registry: &Registry, pattern: &Pattern) -> Attributes {
    let open = pattern.provider.is_empty() || is_glob(&pattern.provider);
    let facts = if open { None } else { registry.provider(&pattern.provider) };
    ProviderStability::of_description(facts.map(|f| f.stability).as_ref(), pattern)
}

/// `-xamin`: descriptions and clauses with lower attributes are errors.
pub(crate) fn check_least(clauses: &[Clause], registry: &Registry, least: Attributes, sink: &mut Sink) {
    for clause in clauses {
        for described in &clause.patterns {
            let has = description_attributes(registry, &described.pattern);
            if !has.at_least(least) {
                let text = format!(
                    "attributes for description {} ({has}) are less than predefined minimum",
                    described.pattern
                );
                sink.push(Diagnostic::new(Tag::D_ATTR_MIN, described.span, text));
            }
        }
        if !clause.attributes.at_least(least) {
            let text =
                format!("attributes for clause ({}) are less than predefined minimum", clause.attributes);
            sink.push(Diagnostic::new(Tag::D_ATTR_MIN, clause.span, text));
        }
    }
}
