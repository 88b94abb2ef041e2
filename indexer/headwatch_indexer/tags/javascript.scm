; Declarations; an export statement around one widens it.
(function_declaration name: (_) @name) @definition.function
(generator_function_declaration name: (_) @name) @definition.function
(class_declaration name: (_) @name) @definition.class
(export_statement declaration: (function_declaration name: (_) @name)) @definition.function
(export_statement declaration: (generator_function_declaration name: (_) @name)) @definition.function
(export_statement declaration: (class_declaration name: (_) @name)) @definition.class
(export_statement "default" @name
  value: [(function_expression !name) (generator_function !name) (arrow_function)]) @definition.function
(export_statement value: (function_expression name: (_) @name)) @definition.function
(export_statement value: (generator_function name: (_) @name)) @definition.function
(export_statement "default" @name value: (class !name)) @definition.class
(export_statement value: (class name: (_) @name)) @definition.class

; Members of a class body.
(class_body (method_definition name: (_) @name) @definition.method)

; Functions and classes held by a variable.
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function)]) @definition.function
(variable_declarator name: (identifier) @name value: (class)) @definition.class

; Components: const Button = React.memo((props) => …), const Row = memo(forwardRef(function (props, ref) { … }))
(program [
  (lexical_declaration (variable_declarator name: (identifier) @name value: (call_expression
    arguments: (arguments . [(arrow_function) (function_expression)]))))
  (lexical_declaration (variable_declarator name: (identifier) @name value: (call_expression
    arguments: (arguments . (call_expression arguments: (arguments . [(arrow_function) (function_expression)]))))))
  (export_statement declaration: (lexical_declaration (variable_declarator name: (identifier) @name
    value: (call_expression arguments: (arguments . [(arrow_function) (function_expression)])))))
  (export_statement declaration: (lexical_declaration (variable_declarator name: (identifier) @name
    value: (call_expression arguments: (arguments . (call_expression
      arguments: (arguments . [(arrow_function) (function_expression)])))))))
  ] @definition.function
  (#match? @name "^[A-Z][A-Za-z0-9_$]*[a-z]"))

; Functions and classes held by a property: res.json = …, exports.x = …, Foo.prototype.bar = …
(expression_statement (assignment_expression left: (member_expression) @_left
  right: [(function_expression name: (_) @name) (generator_function name: (_) @name)])
  (#eq? @_left "module.exports")) @definition.function
(expression_statement (assignment_expression left: (member_expression) @name
  right: [(arrow_function) (function_expression !name) (generator_function !name)])
  (#eq? @name "module.exports")) @definition.function
(expression_statement (assignment_expression left: (member_expression) @name
  right: [(arrow_function) (function_expression) (generator_function)])
  (#not-eq? @name "module.exports")) @definition.assigned
(expression_statement (assignment_expression left: (member_expression) @name
  right: (assignment_expression
    right: [(arrow_function) (function_expression) (generator_function)]))) @definition.assigned
(expression_statement (assignment_expression
  right: (assignment_expression left: (member_expression) @name
    right: [(arrow_function) (function_expression) (generator_function)]))) @definition.assigned
(expression_statement (assignment_expression left: (identifier) @name
  right: [(arrow_function) (function_expression) (generator_function)])) @definition.function
(expression_statement (assignment_expression left: (member_expression) @name right: (class))) @definition.class

; Properties that a call defines: defineGetter(req, 'protocol', function () {}), Object.defineProperty(a, 'b', {})
(expression_statement (call_expression function: (identifier) @_call
  arguments: (arguments . [(identifier) (member_expression)] @receiver . (string) @name
    . [(arrow_function) (function_expression)]))
  (#match? @_call "^define[A-Z]")) @definition.assigned
(expression_statement (call_expression function: (member_expression) @_call
  arguments: (arguments . [(identifier) (member_expression)] @receiver . (string) @name . (object)))
  (#eq? @_call "Object.defineProperty")) @definition.assigned

; Objects whose functions are members: var app = { use() {} }, exports.x = { … }, export default { … }
(variable_declarator name: (identifier) @name value: (object)) @scope
(assignment_expression left: [(member_expression) (identifier)] @name right: (object)) @scope
(export_statement "default" @name value: (object)) @scope
(object (pair key: (_) @name value: (object)) @scope)
(variable_declarator value: (object [
  (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)])
  (method_definition name: (_) @name)] @definition.method))
(assignment_expression right: (object [
  (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)])
  (method_definition name: (_) @name)] @definition.method))
(export_statement value: (object [
  (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)])
  (method_definition name: (_) @name)] @definition.method))
(object (pair value: (object [
  (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)])
  (method_definition name: (_) @name)] @definition.method)))

; Constants: exported ones, and UPPER_CASE ones of the file.
(program (export_statement declaration: (lexical_declaration . "const" . (variable_declarator
  name: (identifier) @name))) @definition.constant)
(program (lexical_declaration . "const" . (variable_declarator name: (identifier) @name)) @definition.constant
  (#match? @name "^[A-Z][A-Z0-9_]+$"))
