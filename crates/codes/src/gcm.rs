//! AES-GCM (NIST SP 800-38D) over bytes that lie in pieces: sealed from where they are into one place, or only authenticated
//! (GMAC), without being put together first. By AWS-LC's streaming interface, whose passes are those of its one-shot one.

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_ctrl, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CTRL_AEAD_GET_TAG,
    EVP_EncryptFinal_ex, EVP_EncryptInit_ex, EVP_EncryptUpdate, EVP_aes_128_gcm, EVP_aes_256_gcm,
};
use std::ffi::c_int;
use std::ptr::{NonNull, null, null_mut};

/// Bytes of a nonce.
pub const GCM_NONCE_BYTES: usize = 12;
/// Bytes of an authentication tag.
pub const GCM_TAG_BYTES: usize = 16;

/// One key, ready to seal. Not printable; wiped when dropped.
pub struct GcmSealer {
    context: NonNull<EVP_CIPHER_CTX>,
}

// SAFETY: the context is owned, and nothing in it belongs to a thread.
unsafe impl Send for GcmSealer {}

impl GcmSealer {
    /// Of an AES key of 16 or 32 bytes; `None` for other lengths, and without memory.
    pub fn new(key: &[u8]) -> Option<Self> {
        // SAFETY: both give a pointer to a constant.
        let cipher = match key.len() {
            16 => unsafe { EVP_aes_128_gcm() },
            32 => unsafe { EVP_aes_256_gcm() },
            _ => return None,
        };
        // SAFETY: no arguments; null without memory.
        let context = NonNull::new(unsafe { EVP_CIPHER_CTX_new() })?;
        let sealer = Self { context };
        // SAFETY: the context is new and owned, `key` has as many bytes as `cipher` reads, a null nonce leaves it for later.
        let ready = unsafe { EVP_EncryptInit_ex(context.as_ptr(), cipher, null_mut(), key.as_ptr(), null()) };
        (ready == 1).then_some(sealer)
    }

    /// Encrypts `parts`, one after the other, into `out`, and authenticates `additional` before them. A nonce is used once for
    /// each key, or the key is lost. Answers the tag; `None` if `out` is not as long as all parts, or 2 GiB and more are asked for: `out` is
    /// of no use then.
    pub fn seal(
        &mut self,
        nonce: [u8; GCM_NONCE_BYTES],
        additional: &[u8],
        parts: &[&[u8]],
        out: &mut [u8],
    ) -> Option<[u8; GCM_TAG_BYTES]> {
        self.begin(nonce)?;
        self.authenticate(additional)?;
        let mut rest = out;
        for part in parts {
            let (target, after) = rest.split_at_mut_checked(part.len())?;
            self.encrypt(part, target)?;
            rest = after;
        }
        rest.is_empty().then(|| self.tag())?
    }

    /// The tag of bytes that are authenticated and not encrypted (GMAC): `visit` gives them to its
    /// argument, in order. `None` at 2 GiB and more in one piece.
    pub fn authenticate_pieces(
        &mut self,
        nonce: [u8; GCM_NONCE_BYTES],
        visit: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Option<[u8; GCM_TAG_BYTES]> {
        self.begin(nonce)?;
        let mut whole = true;
        visit(&mut |bytes| whole &= self.authenticate(bytes).is_some());
        whole.then(|| self.tag())?
    }

    fn begin(&mut self, nonce: [u8; GCM_NONCE_BYTES]) -> Option<()> {
        // SAFETY: the context has its cipher and key, which null leaves as they are; GCM reads 12 bytes of nonce.
        let begun =
            unsafe { EVP_EncryptInit_ex(self.context.as_ptr(), null(), null_mut(), null(), nonce.as_ptr()) };
        (begun == 1).then_some(())
    }

    fn authenticate(&mut self, bytes: &[u8]) -> Option<()> {
        // SAFETY: without a target they are additional data.
        unsafe { self.update(bytes, null_mut()) }
    }

    /// `target` is as long as `bytes`.
    fn encrypt(&mut self, bytes: &[u8], target: &mut [u8]) -> Option<()> {
        if target.len() != bytes.len() {
            return None;
        }
        // SAFETY: the target is as long, and does not overlap the bytes, as it is borrowed mutably.
        unsafe { self.update(bytes, target.as_mut_ptr()) }
    }

    /// # Safety
    /// `target` is null, or writable for as many bytes and apart from them.
    unsafe fn update(&mut self, bytes: &[u8], target: *mut u8) -> Option<()> {
        let len = c_int::try_from(bytes.len()).ok()?;
        if len == 0 {
            return Some(());
        }
        let mut taken = 0;
        // SAFETY: `bytes` is readable for `len`; GCM writes as many bytes as it reads, to a target of which the caller is sure.
        let done =
            unsafe { EVP_EncryptUpdate(self.context.as_ptr(), target, &raw mut taken, bytes.as_ptr(), len) };
        (done == 1 && taken == len).then_some(())
    }

    fn tag(&mut self) -> Option<[u8; GCM_TAG_BYTES]> {
        let mut nothing = [0; GCM_TAG_BYTES];
        let mut written = 0;
        // SAFETY: GCM writes nothing here; there is space for a block nevertheless.
        let ended =
            unsafe { EVP_EncryptFinal_ex(self.context.as_ptr(), nothing.as_mut_ptr(), &raw mut written) };
        let mut tag = [0; GCM_TAG_BYTES];
        // SAFETY: the command writes `GCM_TAG_BYTES` to its pointer.
        let told = unsafe {
            EVP_CIPHER_CTX_ctrl(
                self.context.as_ptr(),
                EVP_CTRL_AEAD_GET_TAG,
                GCM_TAG_BYTES as c_int,
                tag.as_mut_ptr().cast(),
            )
        };
        (ended == 1 && told == 1).then_some(tag)
    }
}

impl Drop for GcmSealer {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this; it wipes the key.
        unsafe { EVP_CIPHER_CTX_free(self.context.as_ptr()) };
    }
}

#[cfg(test)]
mod tests;
