//! Values that are longer than a metadata value: stored in pieces below a common prefix.

use super::meta::{Store, Transaction, VALUE_BYTES_MAX, key};
use super::types::FsError;

/// Reads a long value, put together; empty if there is none.
pub fn blob(store: &mut Store, txn: &Transaction, prefix: &[u8]) -> Result<Vec<u8>, FsError> {
    let end = key::after(prefix);
    let (mut from, mut out) = (key::piece(prefix, 0), Vec::new());
    while let Some((found, value)) = store.next(txn, &from, &end)? {
        out.extend_from_slice(&value);
        from = found;
        from.push(0);
    }
    Ok(out)
}

/// Replaces a long value; an empty one is removed.
pub fn put_blob(
    store: &mut Store,
    txn: &mut Transaction,
    prefix: &[u8],
    bytes: &[u8],
) -> Result<(), FsError> {
    let pieces = bytes.chunks(VALUE_BYTES_MAX);
    let mut from = key::piece(prefix, pieces.len() as u16);
    let end = key::after(prefix);
    while let Some((found, _)) = store.next(txn, &from, &end)? {
        from = found.clone();
        from.push(0);
        txn.delete(found);
    }
    for (index, piece) in pieces.enumerate() {
        txn.put(key::piece(prefix, index as u16), piece.to_vec());
    }
    Ok(())
}
