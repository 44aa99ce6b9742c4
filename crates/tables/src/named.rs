// SPDX-License-Identifier: Apache-2.0
//! Enumerations whose variants have a number, a name and a text, all said in one line each.

/// Makes an enumeration of `Variant = "name"` lines, or of `Variant = "name", "text"` lines: its list, its names and its texts.
/// Arrays are indexed by it, and reports, metrics and tables are made of its list.
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
            /// All of them, in the order of their numbers.
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
