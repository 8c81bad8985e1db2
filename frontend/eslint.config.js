// The rules of ESLint for the scripts of the browser, their tests and their build.

import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import globals from "globals";

/** Counts components as used; ESLint 9 does not see those of JSX. */
const jsx = {
  rules: {
    used: {
      create: ({ sourceCode }) => ({
        JSXOpeningElement: (node) => sourceCode.markVariableAsUsed(node.name.name, node),
      }),
    },
  },
};

export default [
  { ignores: ["node_modules/"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "no-shadow": "error",
      "no-unused-vars": ["error", { args: "all", argsIgnorePattern: "^_" }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  { files: ["src/**", "tests/**"], languageOptions: { globals: globals.browser } },
  { files: ["*.js", "tests/**"], languageOptions: { globals: globals.node } },
  {
    files: ["**/*.jsx"],
    plugins: { "react-hooks": hooks, jsx },
    rules: { "jsx/used": "error", "react-hooks/rules-of-hooks": "error", "react-hooks/exhaustive-deps": "error" },
    languageOptions: { parserOptions: { ecmaFeatures: { jsx: true } } },
  },
];
