// SPDX-License-Identifier: Apache-2.0
//! Messages of rtnetlink(7) about virtual functions (linux/if_link.h, "Virtual Functions management section").

use std::fmt;
use std::io;
use std::str::FromStr;

use quietwire_base::rtnetlink::{attribute, attributes, link, parse_link, push};
use quietwire_packet::MacAddress;

use crate::uri::FunctionSettings;

// linux/if_link.h.
const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_VLAN: u16 = 2;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_TRUST: u16 = 9;
// linux/rtnetlink.h.
const RTEXT_FILTER_VF: u32 = 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

/// Octets of the address in struct ifla_vf_mac, of which Ethernet uses six.
const ADDRESS_OCTETS: usize = 32;

/// One setting of a virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Mac(MacAddress),
    Vlan {
        id: u32,
        /// Priority (PCP), 0 to 7.
        priority: u32,
    },
    Trust(bool),
    SpoofCheck(bool),
    /// Rates in Mbit/s; 0 is no limit.
    Rate {
        min: u32,
        max: u32,
    },
}

impl Setting {
    /// Returns the name of the option of a URI.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Mac(_) => "mac",
            Self::Vlan { .. } => "vlan",
            Self::Trust(_) => "trust",
            Self::SpoofCheck(_) => "spoof-check",
            Self::Rate { .. } => "max-tx-rate",
        }
    }

    /// Returns its attribute: type and value.
    fn attribute(&self, number: u32) -> (u16, Vec<u8>) {
        let words = |kind, words: &[u32]| {
            let all = [&[number][..], words].concat();
            (
                kind,
                all.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            )
        };
        match *self {
            Self::Mac(address) => {
                let mut value = number.to_ne_bytes().to_vec();
                value.extend(address.0);
                value.resize(4 + ADDRESS_OCTETS, 0);
                (IFLA_VF_MAC, value)
            }
            Self::Vlan { id, priority } => words(IFLA_VF_VLAN, &[id, priority]),
            Self::Trust(on) => words(IFLA_VF_TRUST, &[u32::from(on)]),
            Self::SpoofCheck(on) => words(IFLA_VF_SPOOFCHK, &[u32::from(on)]),
            Self::Rate { min, max } => words(IFLA_VF_RATE, &[min, max]),
        }
    }
}

/// As in a record: `vlan=5,0`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.name())?;
        match self {
            Self::Mac(address) => write!(f, "{address}"),
            Self::Vlan { id, priority } => write!(f, "{id},{priority}"),
            Self::Trust(on) | Self::SpoofCheck(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Rate { min, max } => write!(f, "{min},{max}"),
        }
    }
}

impl FromStr for Setting {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, value) = text.split_once('=').ok_or(())?;
        let pair = || {
            let (first, second) = value.split_once(',').ok_or(())?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| ());
            Ok::<_, ()>((number(first)?, number(second)?))
        };
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(()),
        };
        Ok(match name {
            "mac" => Self::Mac(value.parse().map_err(|_| ())?),
            "vlan" => {
                let (id, priority) = pair()?;
                Self::Vlan { id, priority }
            }
            "trust" => Self::Trust(switch()?),
            "spoof-check" => Self::SpoofCheck(switch()?),
            "max-tx-rate" => {
                let (min, max) = pair()?;
                Self::Rate { min, max }
            }
            _ => return Err(()),
        })
    }
}

/// Settings of a virtual function, as the driver of its physical function reports them. `None` for those that it does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) mac: Option<MacAddress>,
    /// ID and priority.
    pub(super) vlan: Option<(u32, u32)>,
    pub(super) trust: Option<bool>,
    pub(super) spoof_check: Option<bool>,
    /// Minimum and maximum.
    pub(super) rate: Option<(u32, u32)>,
}

impl State {
    /// Reads the state of a function from the reply about its physical function's interface. `None` if the reply has no such function.
    pub(super) fn parse(reply: &[u8], number: u32) -> Option<Self> {
        let (_, all) = parse_link(reply)?;
        let list = attribute(all, IFLA_VFINFO_LIST)?;
        let mut functions = attributes(list).filter(|(kind, _)| *kind == IFLA_VF_INFO);
        functions.find_map(|(_, function)| Self::of(function, number))
    }

    fn of(function: &[u8], number: u32) -> Option<Self> {
        let word = |kind, index: usize| {
            let value = attribute(function, kind)?;
            let octets = value.get(index.checked_mul(4)?..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*octets))
        };
        if word(IFLA_VF_MAC, 0)? != number {
            return None;
        }
        // -1: the driver does not report it.
        let switch = |kind| match word(kind, 1)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let pair = |kind| Some((word(kind, 1)?, word(kind, 2)?));
        let address =
            attribute(function, IFLA_VF_MAC).and_then(|value| value.get(4..)?.first_chunk());
        Some(Self {
            mac: address.copied().map(MacAddress),
            vlan: pair(IFLA_VF_VLAN),
            trust: switch(IFLA_VF_TRUST),
            spoof_check: switch(IFLA_VF_SPOOFCHK),
            rate: pair(IFLA_VF_RATE),
        })
    }

    /// Returns the current value of a setting.
    pub(super) fn current(&self, setting: &Setting) -> Option<Setting> {
        Some(match setting {
            Setting::Mac(_) => Setting::Mac(self.mac?),
            Setting::Vlan { .. } => {
                let (id, priority) = self.vlan?;
                Setting::Vlan { id, priority }
            }
            Setting::Trust(_) => Setting::Trust(self.trust?),
            Setting::SpoofCheck(_) => Setting::SpoofCheck(self.spoof_check?),
            Setting::Rate { .. } => {
                let (min, max) = self.rate?;
                Setting::Rate { min, max }
            }
        })
    }

    /// Returns the settings that a URI requires. The minimum rate stays.
    pub(super) fn wanted(&self, settings: &FunctionSettings) -> Vec<Setting> {
        let min = self.rate.map_or(0, |(min, _)| min);
        let vlan = settings.vlan.map(|id| Setting::Vlan {
            id: u32::from(id),
            priority: 0,
        });
        [
            settings.mac.map(Setting::Mac),
            vlan,
            settings.trust.map(Setting::Trust),
            settings.spoof_check.map(Setting::SpoofCheck),
            settings.max_tx_rate.map(|max| Setting::Rate { min, max }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Returns the request for an interface with its virtual functions.
pub(super) fn request(index: u32) -> io::Result<Vec<u8>> {
    let mut own = Vec::new();
    // Statistics would make the reply for hundreds of functions too long.
    let mask = RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS;
    push(&mut own, IFLA_EXT_MASK, &mask.to_ne_bytes())?;
    Ok(link(index, 0, 0, &own))
}

/// Returns the change of one setting of a virtual function of an interface.
pub(super) fn change(index: u32, number: u32, setting: &Setting) -> io::Result<Vec<u8>> {
    let (kind, value) = setting.attribute(number);
    let (mut function, mut list, mut own) = (Vec::new(), Vec::new(), Vec::new());
    push(&mut function, kind, &value)?;
    push(&mut list, IFLA_VF_INFO, &function)?;
    push(&mut own, IFLA_VFINFO_LIST, &list)?;
    Ok(link(index, 0, 0, &own))
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    const ADDRESS: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x0a]);

    /// As `ip link set dev IF vf 3 vlan 5`, `… mac`, `… trust on`, `… spoofchk off`, `… max_tx_rate 1000`.
    #[test]
    fn changes_are_those_of_ip_link() {
        let header = [0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let of = |setting| {
            let message = change(9, 3, &setting).unwrap();
            assert_eq!(message[..16], header);
            message[16..].to_vec()
        };
        #[rustfmt::skip]
        let vlan = [24, 0, 22, 0, 20, 0, 1, 0, 16, 0, 2, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(of(Setting::Vlan { id: 5, priority: 0 }), vlan);
        #[rustfmt::skip]
        let trust = [20, 0, 22, 0, 16, 0, 1, 0, 12, 0, 9, 0, 3, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(of(Setting::Trust(true)), trust);
        #[rustfmt::skip]
        let spoof_check = [20, 0, 22, 0, 16, 0, 1, 0, 12, 0, 4, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(of(Setting::SpoofCheck(false)), spoof_check);
        #[rustfmt::skip]
        let rate = [24, 0, 22, 0, 20, 0, 1, 0, 16, 0, 6, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0];
        assert_eq!(of(Setting::Rate { min: 0, max: 1000 }), rate);
        let begin = [
            48, 0, 22, 0, 44, 0, 1, 0, 40, 0, 1, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0x0a,
        ];
        let mac = of(Setting::Mac(ADDRESS));
        assert_eq!(mac[..22], begin);
        assert_eq!(mac[22..], [0; 26]);
        let mask = [8, 0, 29, 0, 9, 0, 0, 0];
        assert_eq!(request(9).unwrap(), [&header[..], &mask].concat());
    }

    /// Returns the reply of the kernel about an interface with these functions.
    /// A virtual function in a reply: number, settings, words by attribute.
    type Described<'a> = (u32, &'a [Setting], &'a [(u16, u32)]);

    fn reply(functions: &[Described<'_>]) -> Vec<u8> {
        let mut list = Vec::new();
        for (number, settings, others) in functions {
            let mut function = Vec::new();
            for setting in *settings {
                let (kind, value) = setting.attribute(*number);
                push(&mut function, kind, &value).unwrap();
            }
            for (kind, word) in *others {
                let value = [number.to_ne_bytes(), word.to_ne_bytes()].concat();
                push(&mut function, *kind, &value).unwrap();
            }
            push(&mut list, IFLA_VF_INFO, &function).unwrap();
        }
        let mut own = Vec::new();
        push(&mut own, IFLA_VFINFO_LIST | 1 << 15, &list).unwrap();
        let kind = libc::RTM_NEWLINK.to_ne_bytes();
        let header = [&[0; 4][..], &kind, &[0; 10]].concat();
        [header, link(9, 0, 0, &own)].concat()
    }

    #[test]
    fn a_state_is_read_from_the_reply_by_the_number_of_the_function() {
        let none = MacAddress::default();
        let plain: &[Setting] = &[Setting::Mac(none), Setting::Vlan { id: 0, priority: 0 }];
        let full: &[Setting] = &[
            Setting::Mac(ADDRESS),
            Setting::Vlan { id: 5, priority: 6 },
            Setting::Rate { min: 1, max: 2 },
            Setting::SpoofCheck(true),
            Setting::Trust(false),
        ];
        let unknown: &[(u16, u32)] = &[(IFLA_VF_SPOOFCHK, u32::MAX)];
        let reply = reply(&[(0, plain, unknown), (1, full, &[])]);
        let first = State {
            mac: Some(none),
            vlan: Some((0, 0)),
            ..State::default()
        };
        assert_eq!(State::parse(&reply, 0), Some(first));
        let second = State::parse(&reply, 1).unwrap();
        for setting in full {
            assert_eq!(second.current(setting), Some(*setting));
        }
        assert_eq!(first.current(&Setting::Trust(true)), None);
        assert_eq!(State::parse(&reply, 2), None);
        for length in 0..reply.len() {
            let _ = State::parse(&reply[..length], 1);
        }
        let settings = FunctionSettings {
            vlan: Some(7),
            max_tx_rate: Some(10),
            ..FunctionSettings::default()
        };
        let wanted = [
            Setting::Vlan { id: 7, priority: 0 },
            Setting::Rate { min: 1, max: 10 },
        ];
        assert_eq!(second.wanted(&settings), wanted);
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        for setting in [
            Setting::Mac(ADDRESS),
            Setting::Vlan {
                id: 4094,
                priority: 7,
            },
            Setting::Trust(true),
            Setting::SpoofCheck(false),
            Setting::Rate {
                min: 0,
                max: 40_000,
            },
        ] {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        for text in [
            "", "vlan", "vlan=5", "vlan=5,x", "trust=1", "mac=1", "speed=on",
        ] {
            assert_eq!(text.parse::<Setting>(), Err(()), "{text}");
        }
    }
}
