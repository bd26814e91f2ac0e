import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.runners.core.construction.NativeTransforms;
import org.apache.beam.runners.core.construction.graph.ExecutableStage;
import org.apache.beam.runners.core.construction.graph.FusedPipeline;
import org.apache.beam.runners.core.construction.graph.GreedyPipelineFuser;
import org.apache.beam.runners.core.construction.graph.PipelineNode;
import org.apache.beam.runners.core.construction.graph.QueryablePipeline;
import org.apache.beam.runners.core.construction.graph.TrivialNativeTransformExpander;
import org.apache.beam.runners.fnexecution.translation.PipelineTranslatorUtils;
import org.apache.beam.runners.fnexecution.wire.WireCoders;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.WindowedValue;
import org.apache.beam.sdk.values.KV;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.python.shaded.org.joda.time.Instant;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A portable Beam pipeline as a Flink job: as much of Beam's own Flink runner as our tests need.
 *
 * <p>Beam's job server is not at hand; Flink's own jar for Python carries the rest of what it is made of: the
 * fuser, and all that talks to Beam's Python workers. This translates Impulse, files of lines,
 * fused stages with state and event-time timers, Reshuffle, Flatten, and GroupByKey with the default
 * trigger.
 *
 * <p>Between operators, an element is the bytes of its WindowedValue.
 */
public final class PortablePipeline {
  static final String IMPULSE = "beam:transform:impulse:v1";
  static final String GROUP = "beam:transform:group_by_key:v1";
  static final String FLATTEN = "beam:transform:flatten:v1";
  static final String RESHUFFLE = "beam:transform:reshuffle:v1";
  /** Ours: lines "key,value,microseconds,row" of all files of a directory, each file in order. */
  static final String LINES = "beam_dpcount:lines:v1";

  static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

  /** Says which transforms are Flink's, whatever Beam's Python made of them; a service of the fuser. */
  public static final class Native implements NativeTransforms.IsNativeTransform {
    static final Set<String> URNS = Set.of(RESHUFFLE, LINES);

    @Override
    public boolean test(RunnerApi.PTransform transform) {
      return URNS.contains(transform.getSpec().getUrn());
    }
  }

  private final StreamExecutionEnvironment flink;
  private final Options options;
  private final Map<String, DataStream<byte[]>> streams = new HashMap<>();
  private RunnerApi.Components components;

  private PortablePipeline(StreamExecutionEnvironment flink, Options options) {
    this.flink = flink;
    this.options = options;
  }

  /** What the command line says: name=value. */
  static final class Options implements java.io.Serializable {
    final HashMap<String, String> given = new HashMap<>();

    Options(String[] words) {
      for (String word : words) {
        String[] parts = word.split("=", 2);
        given.put(parts[0], parts[1]);
      }
    }

    String text(String name, String otherwise) {
      return given.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
      return Integer.parseInt(text(name, String.valueOf(otherwise)));
    }
  }

  public static void main(String[] words) throws Exception {
    Options options = new Options(words);
    Configuration settings = new Configuration();
    String savepoint = options.text("savepoint_path", "");
    if (!savepoint.isEmpty()) {
      settings.set(StateRecoveryOptions.SAVEPOINT_PATH, savepoint);
    }
    int rest = options.number("rest", 0);
    StreamExecutionEnvironment flink =
        rest == 0
            ? StreamExecutionEnvironment.createLocalEnvironment(settings)
            : StreamExecutionEnvironment.createRemoteEnvironment("localhost", rest, settings);
    flink.setParallelism(options.number("parallelism", 1));
    if (options.number("streaming", 1) == 0) {
      flink.setRuntimeMode(RuntimeExecutionMode.BATCH);
    }
    flink.setBufferTimeout(1);
    int interval = options.number("checkpointing_interval", 0);
    if (interval > 0) {
      flink.enableCheckpointing(interval);
      if (Boolean.parseBoolean(options.text("retain_externalized_checkpoints_on_cancellation", ""))) {
        flink
            .getCheckpointConfig()
            .setExternalizedCheckpointRetention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
      }
    }
    byte[] bytes = Files.readAllBytes(java.nio.file.Path.of(options.text("pipeline", "")));
    new PortablePipeline(flink, options).translate(RunnerApi.Pipeline.parseFrom(bytes));
    JobClient job = flink.executeAsync(options.text("name", "pipeline"));
    System.out.println("job " + job.getJobID());
    System.out.flush();
    for (var each : job.getJobExecutionResult().get().getAllAccumulatorResults().entrySet()) {
      System.out.println("counter " + each.getKey() + " " + each.getValue());
    }
    System.out.println("done");
  }

  private void translate(RunnerApi.Pipeline pipeline) throws Exception {
    pipeline = TrivialNativeTransformExpander.forKnownUrns(pipeline, Native.URNS);
    FusedPipeline fused = GreedyPipelineFuser.fuse(pipeline);
    pipeline = fused.toPipeline();
    components = pipeline.getComponents();
    for (PipelineNode.PTransformNode node :
        QueryablePipeline.forTransforms(pipeline.getRootTransformIdsList(), components)
            .getTopologicallyOrderedTransforms()) {
      RunnerApi.PTransform transform = node.getTransform();
      String urn = transform.getSpec().getUrn();
      switch (urn) {
        case IMPULSE -> impulse(transform);
        case LINES -> lines(transform);
        case FLATTEN -> flatten(transform);
        case RESHUFFLE -> streams.put(only(transform.getOutputsMap()), input(transform).rebalance());
        case GROUP -> group(transform);
        case ExecutableStage.URN -> stage(node.getId(), transform);
        default -> throw new UnsupportedOperationException(urn + " of " + node.getId());
      }
    }
  }

  private void impulse(RunnerApi.PTransform transform) throws Exception {
    String output = only(transform.getOutputsMap());
    byte[] element = encode(coder(components, output), WindowedValue.valueInGlobalWindow(new byte[0]));
    streams.put(output, flink.fromData(BYTES, element).name("impulse").uid(transform.getUniqueName()));
  }

  private void lines(RunnerApi.PTransform transform) throws Exception {
    String output = only(transform.getOutputsMap());
    String[] words = transform.getSpec().getPayload().toStringUtf8().split("\n", -1);
    Path directory = new Path(words[0]);
    long late = Long.parseLong(words[1]);
    long pace = Long.parseLong(words[2]);
    long slowFrom = words[3].isEmpty() ? Long.MAX_VALUE : Long.parseLong(words[3]);
    FileSource<String> source =
        FileSource.forRecordStreamFormat(new TextLineInputFormat(), directory).build();
    WatermarkStrategy<String> times =
        WatermarkStrategy.<String>forBoundedOutOfOrderness(java.time.Duration.ofMillis(late))
            .withTimestampAssigner((line, ignored) -> Lines.millis(line));
    streams.put(
        output,
        flink
            .fromSource(source, times, "lines")
            .uid(transform.getUniqueName())
            .map(new Lines(components.toByteArray(), output, pace, slowFrom))
            .returns(BYTES));
  }

  /** Lines as elements, so many microseconds apart, and a second more from some row on. */
  static final class Lines implements MapFunction<String, byte[]> {
    private final byte[] components;
    private final String output;
    private final long pace;
    private final long slowFrom;
    private transient Coder<WindowedValue<byte[]>> coder;

    Lines(byte[] components, String output, long pace, long slowFrom) {
      this.components = components;
      this.output = output;
      this.pace = pace;
      this.slowFrom = slowFrom;
    }

    static long millis(String line) {
      return Math.floorDiv(Long.parseLong(line.split(",")[2]), 1000L);
    }

    static long row(String line) {
      return Long.parseLong(line.split(",")[3]);
    }

    @Override
    public byte[] map(String line) throws Exception {
      if (coder == null) {
        coder = PortablePipeline.coder(RunnerApi.Components.parseFrom(components), output);
      }
      if (pace > 0) {
        Thread.sleep(pace / 1000, (int) (pace % 1000) * 1000);
      }
      if (slowFrom < Long.MAX_VALUE && row(line) >= slowFrom) {
        Thread.sleep(1000);
      }
      byte[] text = line.getBytes(StandardCharsets.UTF_8);
      return encode(coder, WindowedValue.timestampedValueInGlobalWindow(text, new Instant(millis(line))));
    }
  }

  private void flatten(RunnerApi.PTransform transform) {
    DataStream<byte[]> all = null;
    for (String input : transform.getInputsMap().values()) {
      all = all == null ? streams.get(input) : all.union(streams.get(input));
    }
    streams.put(only(transform.getOutputsMap()), all);
  }

  private void group(RunnerApi.PTransform transform) throws Exception {
    String from = only(transform.getInputsMap());
    Group.check(PipelineTranslatorUtils.getWindowingStrategy(from, components));
    byte[] parts = components.toByteArray();
    String to = only(transform.getOutputsMap());
    streams.put(
        to,
        streams
            .get(from)
            .keyBy(new Key(parts, from), Types.STRING)
            .transform("group", BYTES, new Group(parts, from, to))
            .uid(transform.getUniqueName()));
  }

  private void stage(String id, RunnerApi.PTransform transform) throws Exception {
    RunnerApi.ExecutableStagePayload payload =
        RunnerApi.ExecutableStagePayload.parseFrom(transform.getSpec().getPayload());
    DataStream<byte[]> input = streams.get(payload.getInput());
    if (payload.getSideInputsCount() > 0) {
      throw new UnsupportedOperationException("side inputs of " + id);
    }
    if (payload.getUserStatesCount() + payload.getTimersCount() > 0) {
      if (options.number("streaming", 1) == 0) {
        throw new UnsupportedOperationException("state in batch: give --streaming, for " + id);
      }
      input = input.keyBy(new Key(components.toByteArray(), payload.getInput()), Types.STRING);
    }
    List<String> outputs = new ArrayList<>(transform.getOutputsMap().values());
    StageOperator operator = new StageOperator(payload.toByteArray(), outputs, options);
    // What a savepoint finds a stage by: the name of its first transform.
    String name = components.getTransformsOrDefault(payload.getTransforms(0), transform).getUniqueName();
    TypeInformation<Tuple2<Integer, byte[]>> type = Types.TUPLE(Types.INT, BYTES);
    SingleOutputStreamOperator<Tuple2<Integer, byte[]>> made =
        input.transform(name, type, operator).uid(name);
    for (int i = 0; i < outputs.size(); i++) {
      int wanted = i;
      streams.put(
          outputs.get(i), made.filter(each -> each.f0 == wanted).map(each -> each.f1).returns(BYTES));
    }
  }

  private DataStream<byte[]> input(RunnerApi.PTransform transform) {
    return streams.get(only(transform.getInputsMap()));
  }

  private static String only(Map<String, String> collections) {
    if (collections.size() != 1) {
      throw new UnsupportedOperationException("one collection expected: " + collections);
    }
    return collections.values().iterator().next();
  }

  /** The coder of a collection's elements, with their windows, as they go to and from a worker. */
  static <T> Coder<WindowedValue<T>> coder(RunnerApi.Components components, String collection)
      throws Exception {
    return WireCoders.instantiateRunnerWireCoder(
        PipelineNode.pCollection(collection, components.getPcollectionsOrThrow(collection)), components);
  }

  static <T> byte[] encode(Coder<T> coder, T value) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    coder.encode(value, bytes);
    return bytes.toByteArray();
  }

  static <T> T decode(Coder<T> coder, byte[] bytes) throws Exception {
    return coder.decode(new ByteArrayInputStream(bytes));
  }

  /** A key's bytes, one character each: what Flink keys by. */
  static String flinkKey(byte[] bytes) {
    return new String(bytes, StandardCharsets.ISO_8859_1);
  }

  static byte[] keyBytes(String key) {
    return key.getBytes(StandardCharsets.ISO_8859_1);
  }

  /** The key of an element. */
  static final class Key implements KeySelector<byte[], String> {
    private final byte[] components;
    private final String collection;
    private transient Coder<WindowedValue<KV<Object, Object>>> coder;
    private transient Coder<Object> keys;

    Key(byte[] components, String collection) {
      this.components = components;
      this.collection = collection;
    }

    @Override
    public String getKey(byte[] element) throws Exception {
      if (coder == null) {
        coder = PortablePipeline.coder(RunnerApi.Components.parseFrom(components), collection);
        keys = keyCoder(coder);
      }
      return flinkKey(encode(keys, decode(coder, element).getValue().getKey()));
    }
  }

  @SuppressWarnings("unchecked")
  static <K, V> Coder<K> keyCoder(Coder<WindowedValue<KV<K, V>>> coder) {
    Coder<KV<K, V>> pairs =
        ((WindowedValue.WindowedValueCoder<KV<K, V>>) coder).getValueCoder();
    return ((org.apache.beam.sdk.coders.KvCoder<K, V>) pairs).getKeyCoder();
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  static Coder<BoundedWindow> windowCoder(Coder coder) {
    return ((WindowedValue.FullWindowedValueCoder) coder).getWindowCoder();
  }
}
