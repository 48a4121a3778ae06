//! libibverbs.so.1 and librdmacm.so.1, opened when they are first wanted.
//!
//! Owns the two handles for the life of the process, and the functions found in them. Where they are absent there is a reason in words.

use super::layout::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The functions of one library, by their names.
macro_rules! functions {
    ($(#[$about:meta])* $library:ident { $(fn $function:ident($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        pub struct $library {
            $(pub $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $library {
            /// # Safety
            /// `handle` is of the library whose headers declare these functions so.
            unsafe fn find(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($function: {
                        let name = concat!(stringify!($function), "\0").as_bytes();
                        let address = symbol(handle, name)?;
                        // SAFETY: the symbol is a function of this type, by the caller's promise.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// libibverbs.so.1.
    Verbs {
        fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
        fn ibv_free_device_list(*mut *mut ibv_device);
        fn ibv_get_device_name(*mut ibv_device) -> *const c_char;
        fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
        fn ibv_close_device(*mut ibv_context) -> c_int;
        fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
        fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
        fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
        fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
        fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
        fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
        fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut ibv_cq, u32);
        fn ibv_wc_status_str(c_int) -> *const c_char;
    }
}

functions! {
    /// librdmacm.so.1.
    Cm {
        fn rdma_create_event_channel() -> *mut rdma_event_channel;
        fn rdma_destroy_event_channel(*mut rdma_event_channel);
        fn rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
        fn rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        fn rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
        fn rdma_destroy_qp(*mut rdma_cm_id);
        fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
        fn rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    }
}

/// Both libraries.
pub struct Library {
    pub verbs: Verbs,
    pub cm: Cm,
}

/// The libraries; the reason in words if they cannot be used.
pub fn library() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Library, String> {
    let verbs = open(c"libibverbs.so.1", "libibverbs1 and ibverbs-providers")?;
    let cm = open(c"librdmacm.so.1", "librdmacm1")?;
    // SAFETY: the handles are of these libraries; `.so.1` is the ABI of the headers that `layout` follows.
    unsafe { Ok(Library { verbs: Verbs::find(verbs)?, cm: Cm::find(cm)? }) }
}

/// `packages`: Debian's names of the packages with the missing library.
fn open(name: &CStr, packages: &str) -> Result<*mut c_void, String> {
    // SAFETY: the name ends with NUL; constructors of a system library are trusted as those of linked ones are.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        let name = name.to_string_lossy();
        return Err(format!("{name} is not installed (Debian: {packages})"));
    }
    Ok(handle)
}

/// The version of a function that programs are linked with by default. `name` ends with NUL.
fn symbol(handle: *mut c_void, name: &[u8]) -> Result<*mut c_void, String> {
    let name = CStr::from_bytes_with_nul(name).map_err(|error| error.to_string())?;
    // SAFETY: the handle came from dlopen and is never closed; the name ends with NUL.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("the RDMA libraries are too old: they have no {}", name.to_string_lossy()));
    }
    Ok(address)
}
