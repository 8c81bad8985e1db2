// What a page can show, by name: functions that show a model in an element, and return what ends that.

import { FileChooser } from "./views/file_chooser.jsx";
import { Inspect } from "./views/inspect/inspect.jsx";
import { OptionFields } from "./views/option_fields.jsx";
import { ScanTab } from "./views/scan_tab.jsx";
import { render as viewer } from "./viewer/viewer.js";
import { render as choice } from "./widgets/choice.js";
import { render as codeView } from "./widgets/code_view.js";
import { render as divider } from "./widgets/divider.js";
import { render as ownTab } from "./widgets/own_tab.js";

/** @import { Drawing, Rendering } from "./page/types" */

/** @type {Record<string, Rendering>} */
export const components = { viewer, choice, codeView, divider, ownTab };

/** Views, which are drawn from the values of their element.
 * @type {Record<string, Drawing>} */
export const views = { fileChooser: FileChooser, inspect: Inspect, optionFields: OptionFields, scanTab: ScanTab };
