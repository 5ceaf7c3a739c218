-- verb: add many
-- from: new
-- to: waiting or delayed
-- what: as add, for several jobs of one class, in one queue, in their order
--
-- ARGV[1] job model, without unique fields
-- ARGV[2] queue model
-- ARGV[3] queue name
-- ARGV[4] priority
-- ARGV[5] options: '', or JSON: {prepend, delay}, as in add.lua
-- ARGV[6] JSON: [[identifier, {field: value} of a new job]…]
--
-- JSON: [pk…]

--@include adding

local options = ARGV[5] ~= '' and cjson.decode(ARGV[5]) or {}
local job_model, pks = model_of(ARGV[1]), {}
local where = {
  model = model_of(ARGV[2]), name = ARGV[3], priority = ARGV[4], prepend = options.prepend,
  due = options.delay and due_at(options.delay),
}
for i, job in ipairs(cjson.decode(ARGV[6])) do
  pks[i] = add(job_model, job[1], where, job[2])[2]
end
return cjson.encode(pks)
