//! Values that a file server and the file layer both speak of.

/// UTF-16 code units, as the wire carries them: may hold unpaired surrogates.
pub type WideString = Box<[u16]>;

#[derive(Debug, Clone)]
pub struct ExtendedAttribute {
    pub flags: u8,
    /// ASCII, case-insensitive.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}
