// What a page can show, by name: functions that show a model in an element, and return what ends that.

import { render as viewer } from "./viewer/viewer.js";
import { Compare, CompareTab } from "./views/compare.jsx";
import { Diagnosis } from "./views/diagnosis.jsx";
import { FileChooser } from "./views/file_chooser.jsx";
import { SetUp } from "./views/form/set_up.jsx";
import { SettingsForm } from "./views/form/settings_form.jsx";
import { History } from "./views/history.jsx";
import { Inspect } from "./views/inspect/inspect.jsx";
import { LiveErrors } from "./views/live/errors.jsx";
import { Live } from "./views/live/live.jsx";
import { Watch } from "./views/live/watch.jsx";
import { OptionFields } from "./views/option_fields.jsx";
import { RunTab } from "./views/run_tab.jsx";
import { ScanTab } from "./views/scan_tab.jsx";
import { Tuner } from "./views/tuner.jsx";
import { Workbench } from "./views/workbench.jsx";

/** @import { Drawing, Rendering } from "./page/types" */

/** @type {Record<string, Rendering>} */
export const components = { viewer };

/** Views, which are drawn from the values of their element.
 * @type {Record<string, Drawing>} */
export const views = {
  compare: Compare, compareTab: CompareTab, diagnosis: Diagnosis, fileChooser: FileChooser, history: History, inspect: Inspect,
  live: Live, liveErrors: LiveErrors, optionFields: OptionFields, runTab: RunTab, scanTab: ScanTab, settingsForm: SettingsForm,
  setUp: SetUp, tuner: Tuner, watch: Watch, workbench: Workbench,
};
