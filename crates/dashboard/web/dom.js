// What pages use of preact and htm, under one name.

import { h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { useEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { render };
export const html = htm.bind(h);
