// One of a model's threads (crew.js), which worker.js starts where the page may share memory.

import { assist } from "./crew.js";

self.onmessage = ({ data }) => assist(data);
