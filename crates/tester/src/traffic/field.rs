// SPDX-License-Identifier: Apache-2.0
//! Values of a header field in each flow: a fixed value, or a rule.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_base::random::mix;
use quietwire_packet::MacAddress;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::draw::{self, ZipfTable};

/// Largest number of flows of one direction, and of values of one field.
pub const FLOWS_MAX: u32 = 1 << 20;

/// Kind of field: its width and the notation of its values.
pub trait Kind: Clone + fmt::Debug + PartialEq {
    /// Description for error messages.
    const WHAT: &'static str;
    /// Bits on the wire.
    const BITS: u32;
    /// Parses the text of a value. Kinds without a text notation accept numbers only.
    fn read(text: &str) -> Option<u128> {
        let _ = text;
        None
    }
    /// Formats a value as text; `None` if the notation is a number.
    fn write(value: u128) -> Option<String> {
        let _ = value;
        None
    }
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $bits:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name;
        impl Kind for $name {
            const WHAT: &'static str = $what;
            const BITS: u32 = $bits;
        }
    )*};
}

numbers! {
    /// VLAN id.
    VlanIdKind, "a VLAN id from 0 to 4095", 12;
    /// VLAN priority (PCP).
    PriorityKind, "a priority from 0 to 7", 3;
    /// DSCP (RFC 2474).
    DscpKind, "a DSCP from 0 to 63", 6;
    /// TTL or hop limit.
    TtlKind, "a TTL from 0 to 255", 8;
    /// UDP or TCP port.
    PortKind, "a port from 0 to 65535", 16;
    /// VXLAN network identifier (RFC 7348).
    VniKind, "a VNI from 0 to 16777215", 24;
    /// IPv6 flow label (RFC 6437).
    LabelKind, "a flow label from 0 to 1048575", 20;
    /// A number of 32 bits, such as a TCP sequence number.
    WordKind, "a number from 0 to 4294967295", 32;
}

/// MAC address.
#[derive(Clone, Debug, PartialEq)]
pub struct MacKind;

impl Kind for MacKind {
    const WHAT: &'static str = "a MAC address such as \"02:00:00:00:00:01\"";
    const BITS: u32 = 48;
    fn read(text: &str) -> Option<u128> {
        Some(text.parse::<MacAddress>().ok()?.to_u64().into())
    }
    fn write(value: u128) -> Option<String> {
        Some(MacAddress::from_u64(u64::try_from(value).ok()?).to_string())
    }
}

/// IPv4 address.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipv4Kind;

impl Kind for Ipv4Kind {
    const WHAT: &'static str = "an IPv4 address such as \"198.18.0.1\"";
    const BITS: u32 = 32;
    fn read(text: &str) -> Option<u128> {
        Some(text.parse::<Ipv4Addr>().ok()?.to_bits().into())
    }
    fn write(value: u128) -> Option<String> {
        Some(Ipv4Addr::from_bits(u32::try_from(value).ok()?).to_string())
    }
}

/// IPv6 address.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipv6Kind;

impl Kind for Ipv6Kind {
    const WHAT: &'static str = "an IPv6 address such as \"2001:2::1\"";
    const BITS: u32 = 128;
    fn read(text: &str) -> Option<u128> {
        Some(text.parse::<Ipv6Addr>().ok()?.to_bits())
    }
    fn write(value: u128) -> Option<String> {
        Some(Ipv6Addr::from_bits(value).to_string())
    }
}

/// Flags of a TCP header, written as letters of FSRPAUEC (RFC 9293, section 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct FlagsKind;

const FLAGS: &str = "FSRPAUEC";

impl Kind for FlagsKind {
    const WHAT: &'static str = "TCP flags, some of the letters FSRPAUEC or a number from 0 to 255";
    const BITS: u32 = 8;
    fn read(text: &str) -> Option<u128> {
        text.chars()
            .try_fold(0, |flags, letter| Some(flags | 1 << FLAGS.find(letter)?))
    }
}

/// Assignment of values to flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In sequence.
    #[default]
    Sequential,
    /// Drawn with equal probability.
    Uniform,
    /// Drawn, the n-th value with a probability as 1 / n^exponent.
    Zipf,
}

/// Default exponent.
pub(crate) const EXPONENT: f64 = 1.0;
/// Largest exponent. Above it, a single value gets almost all flows.
pub(crate) const EXPONENT_MAX: f64 = 10.0;

/// Values of a field: `count` values `first`, `first + step` and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<K> {
    first: u128,
    step: u128,
    count: u32,
    order: Order,
    exponent: f64,
    kind: PhantomData<K>,
}

impl<K: Kind> Field<K> {
    /// Creates a field with the same value in every flow.
    #[must_use]
    pub fn fixed(value: u128) -> Self {
        Self {
            first: value,
            step: 1,
            count: 1,
            order: Order::Sequential,
            exponent: EXPONENT,
            kind: PhantomData,
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Prepares the rule. `seed` is the description's seed, and `place` distinguishes the fields.
    pub(crate) fn rule(&self, seed: u64, place: u64) -> Rule {
        Rule {
            first: self.first,
            step: self.step,
            count: self.count,
            order: self.order,
            seed: mix(seed ^ mix(place)),
            zipf: (self.order == Order::Zipf).then(|| ZipfTable::new(self.count, self.exponent)),
        }
    }

    fn check(self) -> Result<Self, String> {
        let what = K::WHAT;
        let max = u128::MAX >> 128_u32.saturating_sub(K::BITS);
        if !(1..=FLOWS_MAX).contains(&self.count) {
            return Err(format!(
                "count is {} (must be 1 to {FLOWS_MAX})",
                self.count
            ));
        }
        if !self.exponent.is_finite() || self.exponent < 0.0 || self.exponent > EXPONENT_MAX {
            return Err(format!(
                "exponent is {} (must be 0 to {EXPONENT_MAX})",
                self.exponent
            ));
        }
        let last = self
            .step
            .checked_mul(u128::from(self.count.saturating_sub(1)))
            .and_then(|way| self.first.checked_add(way));
        match last {
            // One value has no order, and is stored without one.
            Some(last) if last <= max && self.count == 1 => Ok(Self::fixed(self.first)),
            Some(last) if last <= max => Ok(self),
            Some(_) | None if self.count == 1 => Err(format!("{} is not {what}", self.first)),
            _ => Err(format!(
                "{} values in steps of {} exceed the field (must be {what})",
                self.count, self.step
            )),
        }
    }
}

/// Rule of a field with its tables.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    first: u128,
    step: u128,
    count: u32,
    order: Order,
    seed: u64,
    zipf: Option<ZipfTable>,
}

impl Rule {
    /// Returns the lowest 8 bits of the field's value in a flow: all of them if the field has no more.
    pub(crate) fn octet(&self, flow: u32) -> u8 {
        let [.., octet] = self.value(flow).to_be_bytes();
        octet
    }

    /// Returns the lowest 16 bits of the field's value in a flow.
    pub(crate) fn word(&self, flow: u32) -> u16 {
        let [.., a, b] = self.value(flow).to_be_bytes();
        u16::from_be_bytes([a, b])
    }

    /// Returns the lowest 32 bits of the field's value in a flow.
    pub(crate) fn double_word(&self, flow: u32) -> u32 {
        let [.., a, b, c, d] = self.value(flow).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the lowest 48 bits of the field's value in a flow.
    pub(crate) fn mac(&self, flow: u32) -> [u8; 6] {
        let [.., a, b, c, d, e, f] = self.value(flow).to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// Returns the field's value in a flow.
    pub(crate) fn value(&self, flow: u32) -> u128 {
        let random = || mix(self.seed.wrapping_add(u64::from(flow)));
        let index = match (self.order, &self.zipf) {
            (Order::Sequential, _) => flow.checked_rem(self.count).unwrap_or(0),
            (Order::Zipf, Some(zipf)) => zipf.draw(random()),
            _ => draw::scaled(random(), self.count),
        };
        let ahead = self.step.wrapping_mul(u128::from(index));
        self.first.wrapping_add(ahead)
    }
}

/// A single value in its notation.
struct Scalar<K>(u128, PhantomData<K>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "K: Kind")]
struct Table<K> {
    first: Scalar<K>,
    #[serde(default = "step")]
    step: u64,
    count: u32,
    #[serde(default)]
    order: Order,
    exponent: Option<f64>,
}

fn step() -> u64 {
    1
}

struct FieldVisitor<K>(PhantomData<K>);

impl<'de, K: Kind> Visitor<'de> for FieldVisitor<K> {
    type Value = Field<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, or values such as {{ first = …, count = 100, step = 1, order = \"sequential\" }}",
            K::WHAT
        )
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Field<K>, E> {
        let known = u128::try_from(value).ok().filter(|_| K::write(0).is_none());
        known
            .and_then(|value| Field::fixed(value).check().ok())
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Field<K>, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Field<K>, E> {
        K::read(text)
            .map(Field::fixed)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field<K>, A::Error> {
        let table = Table::<K>::deserialize(de::value::MapAccessDeserializer::new(map))?;
        if table.exponent.is_some() && table.order != Order::Zipf {
            return Err(de::Error::custom("exponent requires order = \"zipf\""));
        }
        Field {
            first: table.first.0,
            step: table.step.into(),
            count: table.count,
            order: table.order,
            exponent: table.exponent.unwrap_or(EXPONENT),
            kind: PhantomData,
        }
        .check()
        .map_err(de::Error::custom)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Field<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(PhantomData))
    }
}

impl<'de, K: Kind> Deserialize<'de> for Scalar<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One<K>(PhantomData<K>);
        impl<K: Kind> Visitor<'_> for One<K> {
            type Value = u128;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(K::WHAT)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<u128, E> {
                FieldVisitor::<K>(PhantomData)
                    .visit_i64::<E>(value)
                    .map(|field| field.first)
                    .map_err(|_| de::Error::invalid_value(de::Unexpected::Signed(value), &self))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<u128, E> {
                self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<u128, E> {
                K::read(text)
                    .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        let value = deserializer.deserialize_any(One::<K>(PhantomData))?;
        Ok(Self(value, PhantomData))
    }
}

/// Returns a value or step of a traffic file, which has at most 64 bits.
fn number<E: serde::ser::Error>(value: u128) -> Result<u64, E> {
    u64::try_from(value).map_err(E::custom)
}

impl<K: Kind> Serialize for Scalar<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match K::write(self.0) {
            Some(text) => serializer.serialize_str(&text),
            None => serializer.serialize_u64(number::<S::Error>(self.0)?),
        }
    }
}

impl<K: Kind> Serialize for Field<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let first = Scalar::<K>(self.first, PhantomData);
        if self.count == 1 {
            return first.serialize(serializer);
        }
        let mut table = serializer.serialize_struct("Field", 5)?;
        table.serialize_field("first", &first)?;
        table.serialize_field("step", &number::<S::Error>(self.step)?)?;
        table.serialize_field("count", &self.count)?;
        table.serialize_field("order", &self.order)?;
        if self.order == Order::Zipf {
            table.serialize_field("exponent", &self.exponent)?;
        }
        table.end()
    }
}
