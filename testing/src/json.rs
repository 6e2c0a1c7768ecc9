//! JSON by a library that did not write it, and a validator for the schema of the tracer's output.
//!
//! The validator knows the keywords that the schema has. An unknown keyword is a panic, so the
//! schema cannot say anything that is not tested.

#![allow(clippy::panic, clippy::unwrap_used)]

pub use serde_json::Value;

use std::path::Path;

/// Parses the lines of an output, and validates each against `docs/events.schema.json`.
#[track_caller]
pub fn lines(output: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/events.schema.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    lines_by(&text, output)
}

/// As [`lines()`], for a schema in hand.
#[track_caller]
pub fn lines_by(schema: &str, output: &str) -> Vec<Value> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"));
        if let Err(why) = validate(&schema, &schema, &value) {
            panic!("{why}: {line}");
        }
        value
    };
    output.lines().map(line).collect()
}

/// Whether a value is valid by a part of a schema; why not.
fn validate(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let members = schema.as_object().unwrap_or_else(|| panic!("no schema: {schema}"));
    for (keyword, rule) in members {
        keyword_holds(root, (schema, keyword, rule), value)?;
    }
    Ok(())
}

fn keyword_holds(
    root: &Value,
    (schema, keyword, rule): (&Value, &str, &Value),
    value: &Value,
) -> Result<(), String> {
    let check = |holds: bool| if holds { Ok(()) } else { Err(format!("{keyword} {rule} does not hold")) };
    match keyword {
        "$schema" | "$defs" | "title" | "description" => Ok(()),
        "$ref" => {
            let path = rule.as_str().and_then(|path| path.strip_prefix('#')).unwrap();
            let part = root.pointer(path).unwrap_or_else(|| panic!("no definition {path}"));
            validate(root, part, value)
        }
        "oneOf" => {
            let all = rule.as_array().unwrap().iter().map(|one| validate(root, one, value));
            let (valid, wrong): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
            match valid.len() {
                1 => Ok(()),
                0 => Err(format!("none of {wrong:?}")),
                n => Err(format!("{n} alternatives are valid")),
            }
        }
        "const" => check(value == rule),
        "enum" => check(rule.as_array().unwrap().contains(value)),
        "type" => match rule {
            Value::Array(names) => check(names.iter().any(|name| is_type(name, value))),
            name => check(is_type(name, value)),
        },
        "minimum" => check(integer(value).is_none_or(|n| integer(rule).unwrap() <= n)),
        "maximum" => check(integer(value).is_none_or(|n| n <= integer(rule).unwrap())),
        "pattern" => {
            let Some(text) = value.as_str() else { return Ok(()) };
            let digits = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            check(match rule.as_str().unwrap() {
                "^0x[0-9a-f]+$" => text.strip_prefix("0x").is_some_and(|t| !t.is_empty() && digits(t)),
                "^([0-9a-f]{2})*$" => text.len() % 2 == 0 && digits(text),
                other => panic!("a pattern that is not known: {other}"),
            })
        }
        "items" => value.as_array().into_iter().flatten().try_for_each(|item| validate(root, rule, item)),
        "properties" => {
            let Some(object) = value.as_object() else { return Ok(()) };
            let rules = rule.as_object().unwrap().iter();
            rules.filter_map(|(name, rule)| Some((name, rule, object.get(name)?))).try_for_each(
                |(name, rule, member)| validate(root, rule, member).map_err(|why| format!("{name}: {why}")),
            )
        }
        "required" => {
            let names = rule.as_array().unwrap().iter();
            check(names.filter_map(Value::as_str).all(|name| value.get(name).is_some()))
        }
        "additionalProperties" => {
            let known = schema.get("properties").and_then(Value::as_object);
            let others = value.as_object().into_iter().flatten();
            let mut others = others.filter(|(name, _)| !known.is_some_and(|k| k.contains_key(*name)));
            match rule {
                Value::Bool(allowed) => check(*allowed || others.next().is_none()),
                rule => others.try_for_each(|(_, member)| validate(root, rule, member)),
            }
        }
        other => panic!("a keyword that is not known: {other}"),
    }
}

fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

fn is_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "integer" => integer(value).is_some(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("a type that is not known: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(schema: &str, value: &str) -> bool {
        let schema: Value = serde_json::from_str(schema).unwrap();
        validate(&schema, &schema, &serde_json::from_str(value).unwrap()).is_ok()
    }

    #[test]
    fn values_are_valid_only_if_all_keywords_hold() {
        let object = r#"{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":5}},
                         "required":["a"],"additionalProperties":false}"#;
        assert!(holds(object, r#"{"a":5}"#));
        for wrong in ["5", "{}", r#"{"a":-1}"#, r#"{"a":6}"#, r#"{"a":1.5}"#, r#"{"a":1,"b":2}"#] {
            assert!(!holds(object, wrong), "{wrong}");
        }
        let either = r##"{"oneOf":[{"$ref":"#/$defs/x"},{"type":["boolean","null"]},{"const":7},{"enum":[7,8]}],
                         "$defs":{"x":{"type":"string","pattern":"^0x[0-9a-f]+$"}}}"##;
        assert!(["\"0xff\"", "true", "null", "8"].iter().all(|value| holds(either, value)));
        assert!(!["\"0x\"", "\"x\"", "9", "7", "[]"].iter().any(|value| holds(either, value)));
        assert!(holds(r#"{"items":{"type":"number"}}"#, "[1, 2.5]"));
        assert!(!holds(r#"{"items":{"type":"number"}}"#, "[1, \"2\"]"));
        assert!(!holds(r#"{"additionalProperties":{"type":"string"}}"#, r#"{"a":1}"#));
    }
}
