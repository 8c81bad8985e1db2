// What a page can show, by name: functions that show a model in an element, and return what ends that.

import { Diagnosis } from "./views/diagnosis.jsx";
import { FileChooser } from "./views/file_chooser.jsx";
import { OptionFields } from "./views/option_fields.jsx";
import { OwnTabElement } from "./views/own_tab.jsx";
import { RunTab } from "./views/run_tab.jsx";
import { ScanTab } from "./views/scan_tab.jsx";
import { Workbench } from "./views/workbench.jsx";
import { render as viewer } from "./viewer/viewer.js";
import { render as choice } from "./widgets/choice.js";
import { render as divider } from "./widgets/divider.js";

/** @import { Drawing, Rendering } from "./page/types" */

/** @type {Record<string, Rendering>} */
export const components = { viewer, choice, divider };

/** Views, which are drawn from the values of their element.
 * @type {Record<string, Drawing>} */
export const views = {
  diagnosis: Diagnosis, fileChooser: FileChooser, optionFields: OptionFields, ownTab: OwnTabElement, runTab: RunTab,
  scanTab: ScanTab, workbench: Workbench,
};
