// SPDX-License-Identifier: Apache-2.0
//! Marks of connections in nftables' JSON.

use quietwire_tables::connections::MarkBits;
use serde_json::Value;

use super::condition::{Alternatives, Condition};

/// Maximum number of bits of a mask that `!= 0` compares: each becomes a rule.
const BITS_MAX: u32 = 8;

/// Returns the alternatives of a match on marks with these values, and a mask if there is one.
///
/// # Errors
/// The reason why it cannot be expressed.
pub(super) fn alternatives(
    op: &str,
    mask: Option<&Value>,
    values: &[&Value],
) -> Result<Alternatives, String> {
    let wrong = || format!("'ct mark {op}' of this value cannot be expressed");
    let mask = mask.map_or(Some(u32::MAX), word).ok_or_else(wrong)?;
    let values: Option<Vec<u32>> = values.iter().map(|value| word(value)).collect();
    let values = values.ok_or_else(wrong)?;
    let condition = |value: u32, mask: u32| -> Result<Condition, String> {
        let bits = MarkBits::new(value, mask).ok_or("a mark with bits that are not in the mask")?;
        Ok(Condition::CtMark(bits))
    };
    match (op, &values[..]) {
        ("==", values) => values.iter().map(|value| condition(*value, mask)).collect(),
        // One of the bits is set.
        ("!=", [0]) if mask.count_ones() <= BITS_MAX => {
            let bits = (0..u32::BITS).map(|place| 1u32 << place);
            let bits = bits.filter(|bit| mask & bit != 0);
            bits.map(|bit| condition(bit, bit)).collect()
        }
        _ => Err(wrong()),
    }
}

/// Returns the bits that `ct mark set` sets to this value: a number, or the former mark with some bits set or cleared.
///
/// # Errors
/// The reason why it cannot be expressed.
pub(super) fn set_bits(value: &Value) -> Result<MarkBits, String> {
    let bits = kept_and_set(value).and_then(|(kept, set)| MarkBits::new(set, !kept | set));
    bits.ok_or_else(|| format!("'ct mark set {value}' cannot be expressed"))
}

/// Returns the bits of the former mark that a new one keeps, and those that it sets: `ct mark & KEPT | SET`.
fn kept_and_set(value: &Value) -> Option<(u32, u32)> {
    if let Some(number) = word(value) {
        return Some((0, number));
    }
    match operands(value, "|") {
        Some([former, set]) => Some((kept(former)?, word(set)?)),
        None => Some((kept(value)?, 0)),
    }
}

/// Returns the bits of the former mark in `ct mark` or `ct mark & KEPT`.
fn kept(value: &Value) -> Option<u32> {
    let is_mark = |value: &Value| {
        let key = value.get("ct").and_then(|ct| ct.get("key"));
        key.and_then(Value::as_str) == Some("mark")
    };
    if is_mark(value) {
        return Some(u32::MAX);
    }
    let [former, mask] = operands(value, "&")?;
    is_mark(former).then(|| word(mask))?
}

/// Returns both operands of an operator.
fn operands<'json>(value: &'json Value, operator: &str) -> Option<[&'json Value; 2]> {
    match value.get(operator)?.as_array()?.as_slice() {
        [left, right] => Some([left, right]),
        _ => None,
    }
}

fn word(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}
