-- verb: add many
-- from: new
-- to: waiting or delayed
-- what: as add, for several jobs of one class, in one queue, in their order
-- request
--   job_model     without unique fields
--   jobs          JSON: [[identifier, {field: value} of a new job]…]
--   queue_model, queue_name, priority, delay
--   prepend       '1' to put them first
--   registry, replaces   as in add.lua
-- reply
--   done   {pks, outcomes: {number: outcome} of those that were not added, if any}: of each job, whatever its outcome in
--          add.lua

--@include adding
--@include registry

refuse_if_moved(request.registry)
local job_model, pks, outcomes = model_of(request.job_model), {}, nil
local where = {
  model = model_of(request.queue_model), name = request.queue_name, priority = request.priority,
  due = due_at(request.delay), prepend = request.prepend, replaces = request.replaces,
}
write_classes(request.registry)
for i, job in ipairs(cjson.decode(request.jobs)) do
  local identifier, fields = unpack(job)
  local outcome, added = add(job_model, identifier, where, fields)
  pks[i] = added.pk
  if outcome ~= 'added' then
    outcomes = outcomes or {}
    outcomes[tostring(i)] = outcome
  end
end
return answer('done', {pks = pks, outcomes = outcomes})
