//! Values that a file server and the file layer both speak of.

/// UTF-16 code units, as the wire carries them: may hold unpaired surrogates.
pub type WideString = Box<[u16]>;

/// An extended attribute of a file (MS-FSCC 2.4.16).
#[derive(Debug, Clone)]
pub struct ExtendedAttribute {
    /// Flags as the client set them (MS-FSCC 2.4.16), opaque here.
    pub flags: u8,
    /// ASCII, case-insensitive.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}
