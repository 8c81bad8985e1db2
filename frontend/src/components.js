// What a page can show, by name: functions that show a model in an element, and return what ends that.

import { render as viewer } from "./viewer/viewer.js";
import { Compare, CompareTab } from "./views/compare.jsx";
import { History } from "./views/history.jsx";
import { SetUp } from "./views/form/set_up.jsx";
import { SettingsForm } from "./views/form/settings_form.jsx";
import { Tuner } from "./views/tuner.jsx";
import { LiveErrors } from "./views/live/errors.jsx";
import { Live } from "./views/live/live.jsx";
import { Watch } from "./views/live/watch.jsx";
import { Inspect } from "./views/inspect/inspect.jsx";
import { render as codeView } from "./widgets/code_view.js";
import { render as fileList } from "./widgets/file_list.js";
import { render as ownTab } from "./widgets/own_tab.js";

/** @import { Drawing, Rendering } from "./page/types" */

/** @type {Record<string, Rendering>} */
export const components = { viewer, codeView, fileList, ownTab };

/** Views, which are drawn from the values of their element.
 * @type {Record<string, Drawing>} */
export const views = {
  compare: Compare, compareTab: CompareTab, history: History, inspect: Inspect, live: Live, liveErrors: LiveErrors,
  settingsForm: SettingsForm, setUp: SetUp, tuner: Tuner, watch: Watch,
};
