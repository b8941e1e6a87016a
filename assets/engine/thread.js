// One of the threads that compute a model's passes (crew.js), started by worker.js where the page
// may share memory.

import { assist } from "./crew.js";

self.onmessage = ({ data }) => assist(data);
