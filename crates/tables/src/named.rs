// SPDX-License-Identifier: Apache-2.0
//! Enumerations whose variants have a number, a name and a text, defined in one line each.

/// Defines an enumeration from `Variant = "name"` lines, or from `Variant = "name", "text"` lines, with its list of variants, names and
/// texts. Arrays are indexed by it; reports, metrics and tables are generated from its list.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $kind:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        $visibility enum $kind {
            $($(#[$doc])* $variant,)+
        }

        impl $kind {
            /// All variants, in numerical order.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns its name in JSON and metrics.
            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis enum $kind:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal, $text:literal;)+
        }
    ) => {
        $crate::named! {
            $(#[$meta])*
            $visibility enum $kind {
                $($(#[$doc])* $variant = $name;)+
            }
        }

        impl $kind {
            /// Returns its text in tables and traces.
            #[must_use]
            $visibility const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
